//! The protocol of the thread pool under loom, which runs it in every order of its steps, up to a
//! number of preemptions, and with every value that a load may return. Panics of tasks are not
//! covered.
//!
//! It was seen to catch each of these changes. As a data race: opening, joining or leaving a job
//! with `Relaxed`; no fence after the wait for threads that leave; a job written before all threads
//! have left the last one, or while that one is open. As a deadlock: no `SeqCst` fence when
//! sleeping or when waking; sleeping without a last check for a job; opening a job or stopping
//! without waking.

use loom::sync::{Condvar, Mutex};

#[path = "../src/pool/threads.rs"]
mod threads;

use threads::Pool;

/// Stands in for `pool::sync`.
mod sync {
    pub(super) use loom::cell::UnsafeCell;
    pub(super) use loom::hint::spin_loop;
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, fence};
    pub(super) use loom::thread::{Builder, JoinHandle, park, yield_now};

    /// Checking the same word more often would add only equivalent runs.
    pub(super) const SPINS: u32 = 1;
}

/// Counters that tasks increment without synchronization of their own.
struct Counters(Vec<sync::UnsafeCell<usize>>);

// SAFETY: loom runs one thread at a time and fails the test when accesses of two are not ordered.
unsafe impl Sync for Counters {}

impl Counters {
    fn increment(&self, index: usize) {
        // SAFETY: one thread runs at a time, and none stops inside the closure.
        self.0[index].with_mut(|count| unsafe { *count += 1 });
    }

    fn get(&self, index: usize) -> usize {
        // SAFETY: as in `increment`.
        self.0[index].with(|count| unsafe { *count })
    }
}

fn every_order(preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(run);
}

/// Runs jobs of two tasks, one job after the other, on a new pool: each task runs once, its writes
/// are visible to the caller and to the tasks of the next job, and every thread ends.
fn check_jobs(threads: usize, jobs: usize, preemptions: usize) {
    every_order(preemptions, move || {
        let pool = Pool::new(threads).expect("threads start");
        let runs = Counters((0..2).map(|_| sync::UnsafeCell::new(0)).collect());
        for job in 1..=jobs {
            pool.run(2, &|task| runs.increment(task));
            assert_eq!([0, 1].map(|task| runs.get(task)), [job; 2]);
        }
    });
}

/// Runs jobs of one task per thread, each of which waits for all others, so that all threads must
/// wake up.
fn check_waking(threads: usize, jobs: usize, preemptions: usize) {
    every_order(preemptions, move || {
        let pool = Pool::new(threads).expect("threads start");
        for _ in 0..jobs {
            let (arrived, all) = (Mutex::new(0), Condvar::new());
            pool.run(threads, &|_| {
                let mut arrived = arrived.lock().expect("no panic");
                *arrived += 1;
                all.notify_all();
                while *arrived < threads {
                    arrived = all.wait(arrived).expect("no panic");
                }
            });
        }
    });
}

#[test]
fn every_task_runs_once_and_is_visible_on_two_threads() {
    check_jobs(2, 2, 3);
}

#[test]
fn every_task_runs_once_and_is_visible_on_three_threads() {
    check_jobs(3, 1, 2);
    check_jobs(3, 2, 1);
}

#[test]
fn sleeping_threads_wake_up() {
    check_waking(2, 2, 2);
    check_waking(3, 1, 1);
}
