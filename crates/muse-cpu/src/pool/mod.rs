//! A thread pool that shares the tasks of one operation at a time. Results do not depend on which
//! thread runs a task; an idle pool uses no CPU.

mod sync;
mod threads;

use muse_core::{Error, Result};

pub(crate) use threads::{Pool, cannot_start};

/// The largest number of threads; more can only be a mistake.
const MAX_THREADS: usize = 4096;

/// [`Error::Invalid`] for numbers of threads that a pool cannot have.
pub(crate) fn check_threads(threads: usize) -> Result<()> {
    if (1..=MAX_THREADS).contains(&threads) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "{threads} threads cannot share the work: ask for 1 to {MAX_THREADS}, best one per core"
    )))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Barrier, Mutex};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_task_runs_once_on_any_number_of_threads() {
        for threads in [1, 2, 3, 8] {
            let pool = Pool::new(threads).unwrap();
            for tasks in [0, 1, 2, 3, 17, 1000] {
                for _ in 0..50 {
                    let runs: Vec<_> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                    pool.run(tasks, &|i| {
                        runs[i].fetch_add(1, Ordering::Relaxed);
                    });
                    assert!(
                        runs.iter().all(|n| n.load(Ordering::Relaxed) == 1),
                        "{threads} {tasks}"
                    );
                }
            }
        }
    }

    #[test]
    fn sleeping_workers_wake_up() {
        let pool = Pool::new(3).unwrap();
        for _ in 0..5 {
            while !pool.shared.asleep.iter().all(|a| a.load(Ordering::Relaxed)) {
                thread::sleep(Duration::from_millis(1));
            }
            let met = AtomicUsize::new(0);
            // Each task waits for the other one, so two threads must run them.
            pool.run(2, &|_| {
                met.fetch_add(1, Ordering::Relaxed);
                while met.load(Ordering::Relaxed) < 2 {
                    thread::yield_now();
                }
            });
        }
    }

    #[cfg(unix)]
    #[test]
    fn an_idle_pool_uses_no_cpu() {
        // CPU time of the thread, which other work on the machine does not add to.
        let cpu_time = || {
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: the call writes to `time`, a local variable.
            let status =
                unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
            assert_eq!(status, 0, "threads have a clock");
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
        };
        const THREADS: usize = 3;
        let pool = Pool::new(THREADS).unwrap();
        let times = || {
            // Each thread runs one task, since no task ends before all have begun.
            let (all, times) = (Barrier::new(THREADS), Mutex::new(HashMap::new()));
            pool.run(THREADS, &|_| {
                all.wait();
                times.lock().unwrap().insert(thread::current().id(), cpu_time());
            });
            times.into_inner().unwrap()
        };
        let before = times();
        thread::sleep(Duration::from_millis(200));
        let after = times();
        assert_eq!(after.len(), THREADS);
        for (thread, time) in after {
            let time = time - before[&thread];
            // Waking up for the tasks takes some; a thread that polls would use most of the wait.
            assert!(time < Duration::from_millis(50), "{thread:?} ran for {time:?}");
        }
    }

    #[test]
    fn concurrent_callers_do_not_wait_for_each_other() {
        let pool = Pool::new(2).unwrap();
        let total = AtomicUsize::new(0);
        pool.run(2, &|_| {
            pool.run(10, &|_| {
                total.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(total.load(Ordering::Relaxed), 20);
    }

    #[test]
    fn panics_are_resumed_and_the_pool_stays_usable() {
        let pool = Pool::new(2).unwrap();
        for bad in [0, 5, 63] {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                pool.run(64, &|i| {
                    thread::sleep(Duration::from_micros(50));
                    assert!(i != bad, "task {i} fails");
                });
            }));
            let message = caught.expect_err("the panic is resumed");
            assert_eq!(message.downcast_ref(), Some(&format!("task {bad} fails")));
        }
        let ran = AtomicUsize::new(0);
        pool.run(64, &|_| {
            ran.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(ran.load(Ordering::Relaxed), 64);
    }
}
