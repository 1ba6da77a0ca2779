//! Ends the process when a device is lost. The host library waits for a lost device without end and
//! its calls cannot be cancelled, so that only a new process, started by the supervisor, helps.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{process, thread};

use crate::descendants::{self, CpuTimes};

/// Checks of a call until its timeout is over.
const CHECKS: u32 = 20;

/// Observes the calls of one device.
pub(crate) struct Watchdog {
    /// The number of the call under way.
    current: Arc<Mutex<Option<u64>>>,
    calls: AtomicU64,
}

/// A call under way. It ends when this is dropped.
pub(crate) struct Call<'a>(&'a Watchdog);

impl Watchdog {
    /// Ends the process when a call waits for longer than `timeout`. Time in which a process that
    /// this one started computes does not count: the host library starts a compiler for every new
    /// kernel, and a simulator is such a process too. Without `timeout` calls wait without end.
    pub(crate) fn new(id: u32, timeout: Option<Duration>) -> Self {
        let current: Arc<Mutex<Option<u64>>> = Arc::default();
        let watched = Arc::downgrade(&current);
        if let Some(timeout) = timeout {
            // The thread ends at the first check after the device is dropped.
            thread::spawn(move || {
                let mut idle = Idle::default();
                while let Some(current) = watched.upgrade() {
                    let call = *lock(&current);
                    if idle.check(call, descendants::cpu_times) {
                        eprintln!(
                            "Tenstorrent device {id} has not answered for {} s: it is lost, or its \
                             simulator has ended; this process ends with it, see that the device \
                             is there and start again",
                            timeout.as_secs()
                        );
                        // An orderly exit would wait for the host library too.
                        process::abort();
                    }
                    drop(current);
                    thread::sleep(timeout / CHECKS);
                }
            });
        }
        Self { current, calls: AtomicU64::new(0) }
    }

    /// Begins a call.
    pub(crate) fn call(&self) -> Call<'_> {
        *lock(&self.current) = Some(self.calls.fetch_add(1, Ordering::Relaxed));
        Call(self)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        *lock(&self.0.current) = None;
    }
}

/// Counts consecutive checks of one call in which no descendant used CPU time. Checks are counted,
/// not time, so that a suspended machine or process adds one check at most.
#[derive(Default)]
struct Idle {
    checks: u32,
    last: Option<(u64, CpuTimes)>,
}

impl Idle {
    /// Checks the call under way; returns whether the device is lost.
    fn check(&mut self, call: Option<u64>, cpu_times: impl FnOnce() -> CpuTimes) -> bool {
        let now = call.map(|call| (call, cpu_times()));
        if now.is_some() && now == self.last {
            self.checks += 1;
        } else {
            (self.checks, self.last) = (0, now);
        }
        self.checks >= CHECKS
    }
}

fn lock(current: &Mutex<Option<u64>>) -> MutexGuard<'_, Option<u64>> {
    // A panic cannot leave a single value half written.
    current.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many checks pass until the device counts as lost.
    fn lost_after(mut checks: impl Iterator<Item = (Option<u64>, u64)>) -> Option<usize> {
        let mut idle = Idle::default();
        checks.position(|(call, ticks)| idle.check(call, || CpuTimes::from([(7, ticks)])))
    }

    #[test]
    fn a_call_is_lost_after_its_timeout_without_computation() {
        let timeout = CHECKS as usize;
        assert_eq!(lost_after((0..100).map(|_| (Some(1), 5))), Some(timeout));
        let compiles_first = (0..100).map(|check| (Some(1), check.min(40)));
        assert_eq!(lost_after(compiles_first), Some(40 + timeout));
    }

    #[test]
    fn neither_a_compiler_nor_short_calls_nor_an_idle_device_count_as_lost() {
        assert_eq!(lost_after((0..100).map(|check| (Some(1), check / 10))), None);
        assert_eq!(lost_after((0..100).map(|check| (Some(check / 10), 5))), None);
        assert_eq!(lost_after((0..100).map(|_| (None, 5))), None);
    }
}
