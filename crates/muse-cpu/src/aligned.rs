//! Zeroed memory that starts on a cache line, so that no vector load of a whole row crosses lines.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use muse_core::{Error, Result};

const LINE_BYTES: usize = 64;
/// Allocations of at least this size ask for huge pages: weights are read sequentially, hardware
/// prefetchers stop at page boundaries, and the TLB covers few small pages.
const HUGE_BYTES: usize = 4 << 20;

/// Numbers without padding for which all-zero bits are the value zero.
pub(crate) trait Plain: Copy + Send + Sync + 'static {}
impl Plain for f32 {}
impl Plain for i32 {}
impl Plain for u8 {}

/// The bytes of values.
pub(crate) fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: `Plain` values have no padding, so all bytes of the slice are initialized; address
    // and length are those of the slice that is borrowed.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// A slice of fixed length on the heap.
pub(crate) struct Aligned<T: Plain> {
    base: NonNull<u8>,
    layout: Layout,
    start: NonNull<T>,
    len: usize,
}

// SAFETY: it is the only owner of its memory, like a boxed slice; the allocator works from every
// thread, and `Plain` requires `T: Send`.
unsafe impl<T: Plain> Send for Aligned<T> {}
// SAFETY: `&self` gives access to `&[T]` only, and `Plain` requires `T: Sync`.
unsafe impl<T: Plain> Sync for Aligned<T> {}

impl<T: Plain> Aligned<T> {
    /// `len` zeros, or [`Error::Exhausted`]. Large allocations are not touched before they are
    /// used.
    pub(crate) fn zeroed(len: usize) -> Result<Self> {
        let refused = || Error::Exhausted(format!("cannot allocate {len} elements of memory"));
        // With a larger alignment the allocator would clear the memory itself, so the start is
        // rounded up instead.
        let bytes = len.checked_mul(size_of::<T>()).and_then(|n| n.checked_add(LINE_BYTES));
        let layout = bytes.and_then(|n| Layout::from_size_align(n, align_of::<T>()).ok());
        let layout = layout.ok_or_else(refused)?;
        // SAFETY: the layout has `LINE_BYTES` bytes more than the values, so its size is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refused)?;
        if layout.size() >= HUGE_BYTES {
            advise_huge_pages(base, layout.size());
        }
        let skip = base.align_offset(LINE_BYTES);
        assert!(skip < LINE_BYTES, "an address can always be rounded up to a cache line");
        // SAFETY: `skip < LINE_BYTES`, and the layout has as many bytes more than the values.
        let start = unsafe { base.add(skip) }.cast();
        Ok(Self { base, layout, start, len })
    }
}

/// Asks for huge pages. It is a hint: a system without huge pages ignores it.
#[cfg(target_os = "linux")]
fn advise_huge_pages(base: NonNull<u8>, bytes: usize) {
    const PAGE_BYTES: usize = 4096;
    let skip = base.align_offset(PAGE_BYTES);
    let start = base.as_ptr().wrapping_add(skip);
    // SAFETY: `start .. base + bytes` is inside the new allocation, which is larger than a page,
    // and the advice changes no values.
    unsafe { libc::madvise(start.cast(), bytes - skip, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn advise_huge_pages(_: NonNull<u8>, _: usize) {}

impl<T: Plain> Aligned<T> {
    /// Grows to at least `len` values; the values are lost if it grows.
    pub(crate) fn reserve(&mut self, len: usize) -> Result<()> {
        if self.len < len {
            *self = Self::zeroed(len)?;
        }
        Ok(())
    }
}

impl<T: Plain> Drop for Aligned<T> {
    fn drop(&mut self) {
        // SAFETY: `base` is what `alloc_zeroed` returned for this layout, and nothing else frees
        // it.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

impl<T: Plain> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `start` is aligned to a cache line, so for `T`; `zeroed` allocated `len` values
        // from there, initialized to zero bits, which are valid for every `Plain`; `self` is
        // borrowed.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zero_and_aligned_to_a_line() {
        for len in [0, 1, 15, 16, 1000] {
            let mut values = Aligned::<f32>::zeroed(len).unwrap();
            assert_eq!(values.as_ptr().align_offset(LINE_BYTES), 0);
            assert!(values.iter().all(|&x| x == 0.0) && values.len() == len);
            values.fill(1.0);
            assert_eq!(values.iter().sum::<f32>(), len as f32);
        }
    }

    #[test]
    fn allocations_larger_than_memory_are_refused() {
        for len in [1 << 50, usize::MAX / 4, usize::MAX] {
            assert!(matches!(Aligned::<f32>::zeroed(len), Err(Error::Exhausted(_))), "{len}");
        }
    }
}
