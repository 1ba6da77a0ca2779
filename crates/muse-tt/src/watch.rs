//! Ends the process when a device is lost. The host library waits for a lost device without end and
//! its calls cannot be cancelled, so that only a new process, started by the supervisor, helps.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{process, thread};

use crate::descendants::{self, CpuTimes};

/// How often a call is looked at before its patience is over.
const LOOKS: u32 = 20;

/// Watches the calls of one device.
pub(crate) struct Watch {
    /// The number of the call under way.
    current: Arc<Mutex<Option<u64>>>,
    calls: AtomicU64,
}

/// A call under way. It ends when this is dropped.
pub(crate) struct Call<'a>(&'a Watch);

impl Watch {
    /// Ends the process when a call waits for longer than `patience`. Time in which a process that
    /// this one started computes does not count: the host library starts a compiler for every new
    /// kernel, and a simulator is such a process too. Without `patience` calls wait without end.
    pub(crate) fn new(id: u32, patience: Option<Duration>) -> Self {
        let current: Arc<Mutex<Option<u64>>> = Arc::default();
        let watched = Arc::downgrade(&current);
        if let Some(patience) = patience {
            // The thread ends at the first look after the device is dropped.
            thread::spawn(move || {
                let mut idle = Idle::default();
                while let Some(current) = watched.upgrade() {
                    let call = *lock(&current);
                    if idle.look(call, descendants::cpu_times) {
                        eprintln!(
                            "Tenstorrent device {id} has not answered for {} s: it is lost, or its \
                             simulator has ended; this process ends with it, see that the device \
                             is there and start again",
                            patience.as_secs()
                        );
                        // An orderly exit would wait for the host library too.
                        process::abort();
                    }
                    drop(current);
                    thread::sleep(patience / LOOKS);
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

/// Counts looks in a row at one call that found nothing computing. Looks are counted rather than
/// time, so that a machine that stood still, or this process in a debugger, adds one look at most.
#[derive(Default)]
struct Idle {
    looks: u32,
    last: Option<(u64, CpuTimes)>,
}

impl Idle {
    /// Looks at the call under way; whether the device is lost.
    fn look(&mut self, call: Option<u64>, cpu_times: impl FnOnce() -> CpuTimes) -> bool {
        let now = call.map(|call| (call, cpu_times()));
        if now.is_some() && now == self.last {
            self.looks += 1;
        } else {
            (self.looks, self.last) = (0, now);
        }
        self.looks >= LOOKS
    }
}

fn lock(current: &Mutex<Option<u64>>) -> MutexGuard<'_, Option<u64>> {
    // A panic cannot leave a single value half written.
    current.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `looks` pass until the device counts as lost.
    fn lost_after(mut looks: impl Iterator<Item = (Option<u64>, u64)>) -> Option<usize> {
        let mut idle = Idle::default();
        looks.position(|(call, ticks)| idle.look(call, || CpuTimes::from([(7, ticks)])))
    }

    #[test]
    fn a_call_that_nothing_computes_for_is_lost_after_its_patience() {
        let patience = LOOKS as usize;
        assert_eq!(lost_after((0..100).map(|_| (Some(1), 5))), Some(patience));
        let compiles_first = (0..100).map(|look| (Some(1), look.min(40)));
        assert_eq!(lost_after(compiles_first), Some(40 + patience));
    }

    #[test]
    fn neither_a_compiler_nor_short_calls_nor_no_call_are_a_lost_device() {
        assert_eq!(lost_after((0..100).map(|look| (Some(1), look / 10))), None);
        assert_eq!(lost_after((0..100).map(|look| (Some(look / 10), 5))), None);
        assert_eq!(lost_after((0..100).map(|_| (None, 5))), None);
    }
}
