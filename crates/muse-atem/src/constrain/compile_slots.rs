//! Limits how many grammars are compiled at a time, which leaves the other cores to the model, and
//! compiles each grammar once, however many requests need it.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often waiting requests check whether they are still needed.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A fixed number of slots, each held under the key of the grammar that is compiled in it.
pub(super) struct CompileSlots {
    capacity: usize,
    taken: Mutex<HashSet<String>>,
    freed: Condvar,
}

/// A slot; dropping it frees it.
pub(super) struct CompileSlot<'a> {
    slots: &'a CompileSlots,
    key: &'a str,
}

impl CompileSlots {
    /// Half of the cores, at least two: with one slot, a slow grammar would block all others.
    pub(super) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { capacity: (cores / 2).max(2), taken: Mutex::default(), freed: Condvar::new() }
    }

    /// Waits for a slot to compile `key` in; none once `keep_waiting` returns false.
    pub(super) fn acquire<'a>(
        &'a self,
        key: &'a str,
        keep_waiting: &dyn Fn() -> bool,
    ) -> Option<CompileSlot<'a>> {
        let mut taken = self.lock();
        while keep_waiting() {
            if taken.len() < self.capacity && !taken.contains(key) {
                taken.insert(key.to_owned());
                return Some(CompileSlot { slots: self, key });
            }
            let waited = self.freed.wait_timeout(taken, POLL_INTERVAL);
            taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        // A set of complete keys is consistent after a panic elsewhere.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CompileSlot<'_> {
    fn drop(&mut self) {
        self.slots.lock().remove(self.key);
        self.slots.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_compiled_once_at_a_time() {
        let slots = CompileSlots { capacity: 2, taken: Mutex::default(), freed: Condvar::new() };
        let first = slots.acquire("a", &|| true);
        assert!(first.is_some());
        // Returns true twice, so that `acquire` does wait.
        let calls = std::cell::Cell::new(0);
        let twice = || calls.replace(calls.get() + 1) < 2;
        assert!(slots.acquire("a", &twice).is_none(), "two slots for one key");
        assert_eq!(calls.get(), 3);
        let second = slots.acquire("b", &|| true);
        assert!(second.is_some(), "another key waits although a slot is free");
        calls.set(0);
        assert!(slots.acquire("c", &twice).is_none(), "three in two slots");
        drop(first);
        assert!(slots.acquire("c", &|| true).is_some());
        assert!(slots.acquire("a", &|| false).is_none(), "the request is cancelled");
    }

    #[test]
    fn a_freed_slot_wakes_waiting_requests() {
        let slots = CompileSlots { capacity: 1, taken: Mutex::default(), freed: Condvar::new() };
        let done = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for i in 0..8 {
                let (slots, done) = (&slots, &done);
                scope.spawn(move || {
                    let key = format!("{}", i % 3);
                    let slot = slots.acquire(&key, &|| true);
                    assert_eq!(slots.lock().len(), 1, "more than the capacity");
                    drop(slot);
                    done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                });
            }
        });
        assert_eq!(done.into_inner(), 8);
        assert!(slots.lock().is_empty());
    }
}
