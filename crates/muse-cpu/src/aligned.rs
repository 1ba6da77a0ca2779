//! Zeroed memory that starts on a cache line, so that vector loads of whole rows do not split.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use muse_core::{Error, Result};

const LINE_BYTES: usize = 64;
/// From here on memory should lie in huge pages: weights are read in long runs, and neither the
/// prefetchers nor the address caches of a CPU reach over many small ones.
const HUGE_BYTES: usize = 4 << 20;

/// Plain numbers, without padding, for which all zero bits are the value zero.
pub(crate) trait Plain: Copy + Send + Sync + 'static {}
impl Plain for f32 {}
impl Plain for i32 {}
impl Plain for u8 {}

/// The memory of values as it is.
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

// SAFETY: it owns its memory alone and frees it with the allocator of all threads, like a boxed
// slice; `Plain` asks for `T: Send`.
unsafe impl<T: Plain> Send for Aligned<T> {}
// SAFETY: `&self` hands out `&[T]` and bytes to read, nothing else, and `Plain` asks for `T: Sync`.
unsafe impl<T: Plain> Sync for Aligned<T> {}

impl<T: Plain> Aligned<T> {
    /// `len` zeros, or [`Error::Exhausted`]. The memory of large ones is not touched before use.
    pub(crate) fn zeroed(len: usize) -> Result<Self> {
        let refused = || Error::Exhausted(format!("cannot allocate {len} elements of memory"));
        // A larger alignment would make the allocator clear the memory by hand: round up instead.
        let bytes = len.checked_mul(size_of::<T>()).and_then(|n| n.checked_add(LINE_BYTES));
        let layout = bytes.and_then(|n| Layout::from_size_align(n, align_of::<T>()).ok());
        let layout = layout.ok_or_else(refused)?;
        // SAFETY: the layout has `LINE_BYTES` bytes more than the values, so its size is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refused)?;
        if layout.size() >= HUGE_BYTES {
            want_huge_pages(base, layout.size());
        }
        let skip = base.align_offset(LINE_BYTES);
        assert!(skip < LINE_BYTES, "an address can always be rounded up to a cache line");
        // SAFETY: `skip < LINE_BYTES`, and the layout has as many bytes more than the values.
        let start = unsafe { base.add(skip) }.cast();
        Ok(Self { base, layout, start, len })
    }
}

/// Asks for huge pages; a system that has none goes on without.
#[cfg(target_os = "linux")]
fn want_huge_pages(base: NonNull<u8>, bytes: usize) {
    const PAGE_BYTES: usize = 4096;
    let skip = base.align_offset(PAGE_BYTES);
    let start = base.as_ptr().wrapping_add(skip);
    // SAFETY: `start .. base + bytes` lies in the new allocation, which is larger than a page, and
    // the advice changes no value.
    unsafe { libc::madvise(start.cast(), bytes - skip, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn want_huge_pages(_: NonNull<u8>, _: usize) {}

impl<T: Plain> Aligned<T> {
    /// Makes room for `len` values at least; what was there is lost if there was too little.
    pub(crate) fn reserve(&mut self, len: usize) -> Result<()> {
        if self.len < len {
            *self = Self::zeroed(len)?;
        }
        Ok(())
    }
}

impl<T: Plain> Drop for Aligned<T> {
    fn drop(&mut self) {
        // SAFETY: `zeroed` stored what `alloc_zeroed` returned for this very layout, and nothing
        // else frees it.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

impl<T: Plain> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `start` is on a line, so aligned for `T`; `zeroed` made room for `len` values
        // behind it, all zero bits, which is a value of every `Plain`; `self` lends them out.
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
    fn memory_is_zero_and_on_a_line() {
        for len in [0, 1, 15, 16, 1000] {
            let mut values = Aligned::<f32>::zeroed(len).unwrap();
            assert_eq!(values.as_ptr().align_offset(LINE_BYTES), 0);
            assert!(values.iter().all(|&x| x == 0.0) && values.len() == len);
            values.fill(1.0);
            assert_eq!(values.iter().sum::<f32>(), len as f32);
        }
    }

    #[test]
    fn too_much_is_refused() {
        for len in [1 << 50, usize::MAX / 4, usize::MAX] {
            assert!(matches!(Aligned::<f32>::zeroed(len), Err(Error::Exhausted(_))), "{len}");
        }
    }
}
