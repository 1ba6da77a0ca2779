//! Who may compile: a few at a time, which leaves the other cores to the model, and each grammar by
//! one alone, however many ask for it.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often those who wait are asked whether they still want to.
const ASKED_EVERY: Duration = Duration::from_millis(20);

/// So many places, each taken by the key of what is compiled there.
pub(super) struct Gate {
    places: usize,
    taken: Mutex<HashSet<String>>,
    left: Condvar,
}

/// A place, given back when it is dropped.
pub(super) struct Place<'a> {
    gate: &'a Gate,
    key: &'a str,
}

impl Gate {
    /// Half of the cores, but never one place alone: whoever has it would hold up all others.
    pub(super) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { places: (cores / 2).max(2), taken: Mutex::default(), left: Condvar::new() }
    }

    /// Waits for a place to compile `key` in; none once that is no longer wanted.
    pub(super) fn enter<'a>(
        &'a self,
        key: &'a str,
        wanted: &dyn Fn() -> bool,
    ) -> Option<Place<'a>> {
        let mut taken = self.lock();
        while wanted() {
            if taken.len() < self.places && !taken.contains(key) {
                taken.insert(key.to_owned());
                return Some(Place { gate: self, key });
            }
            let waited = self.left.wait_timeout(taken, ASKED_EVERY);
            taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        // A set of whole keys is sound after a panic elsewhere.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.gate.lock().remove(self.key);
        self.gate.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_has_one_place_and_others_have_theirs() {
        let gate = Gate { places: 2, taken: Mutex::default(), left: Condvar::new() };
        let first = gate.enter("a", &|| true);
        assert!(first.is_some());
        // Asked once more than it may wait, so that it does wait.
        let asked = std::cell::Cell::new(0);
        let twice = || asked.replace(asked.get() + 1) < 2;
        assert!(gate.enter("a", &twice).is_none(), "two places for one key");
        assert_eq!(asked.get(), 3);
        let second = gate.enter("b", &|| true);
        assert!(second.is_some(), "another key waits though there is a place");
        asked.set(0);
        assert!(gate.enter("c", &twice).is_none(), "three in two places");
        drop(first);
        assert!(gate.enter("c", &|| true).is_some());
        assert!(gate.enter("a", &|| false).is_none(), "nobody wants it");
    }

    #[test]
    fn who_leaves_wakes_those_who_wait() {
        let gate = Gate { places: 1, taken: Mutex::default(), left: Condvar::new() };
        let done = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for i in 0..8 {
                let (gate, done) = (&gate, &done);
                scope.spawn(move || {
                    let key = format!("{}", i % 3);
                    let place = gate.enter(&key, &|| true);
                    assert_eq!(gate.lock().len(), 1, "more than there are places");
                    drop(place);
                    done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                });
            }
        });
        assert_eq!(done.into_inner(), 8);
        assert!(gate.lock().is_empty());
    }
}
