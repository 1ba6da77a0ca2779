//! The types that threads of a pool synchronize with. `tests/loom.rs` has a module with the same
//! names for the types of loom.

pub(super) use std::hint::spin_loop;
pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, fence};
pub(super) use std::thread::{Builder, JoinHandle, park, yield_now};

/// How often a worker checks for a job before it goes to sleep: some tens of microseconds.
pub(super) const SPINS: u32 = 4_000;

/// A value whose users ensure by themselves that accesses do not overlap.
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(super) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Calls `read` with a pointer to the value.
    pub(super) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Calls `write` with a pointer to the value.
    pub(super) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}
