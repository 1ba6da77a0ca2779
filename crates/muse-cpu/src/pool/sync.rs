//! What threads of a pool share and wait with. `tests/loom.rs` has a module of the same names over
//! loom's types.

pub(super) use std::hint::spin_loop;
pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, fence};
pub(super) use std::thread::{Builder, JoinHandle, park, yield_now};

/// Looks at the job word before a thread goes to sleep: some tens of microseconds.
pub(super) const SPINS: u32 = 4_000;

/// A value whose users keep apart by themselves.
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(super) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Hands out the value to read.
    pub(super) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Hands out the value to write.
    pub(super) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}
