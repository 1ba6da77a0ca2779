//! The pool's protocol under loom, which runs it in every order of its steps, up to a number of
//! preemptions, and with every value that a load may give. Panics of tasks are left out.
//!
//! Changes that it was seen to catch, one at a time. As a data race: opening, joining or leaving a
//! job with `Relaxed`, no fence behind the wait for those who left, a job written before all left
//! the last one or while that one is open. As a deadlock: either `SeqCst` fence of sleeping and
//! waking left out, sleeping without a last look, opening or stopping without waking.

use loom::sync::{Condvar, Mutex};

#[path = "../src/pool/threads.rs"]
mod threads;

use threads::Pool;

/// Takes the place of `pool::sync`.
mod sync {
    pub(super) use loom::cell::UnsafeCell;
    pub(super) use loom::hint::spin_loop;
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, fence};
    pub(super) use loom::thread::{Builder, JoinHandle, park, yield_now};

    /// More looks at the same word show no more.
    pub(super) const SPINS: u32 = 1;
}

/// Numbers that tasks write without any synchronization of their own.
struct Numbers(Vec<sync::UnsafeCell<usize>>);

// SAFETY: loom runs one thread at a time and fails the test when accesses of two are not ordered.
unsafe impl Sync for Numbers {}

impl Numbers {
    fn add(&self, index: usize) {
        // SAFETY: one thread runs at a time, and none stops inside the closure.
        self.0[index].with_mut(|number| unsafe { *number += 1 });
    }

    fn at(&self, index: usize) -> usize {
        // SAFETY: as in `add`.
        self.0[index].with(|number| unsafe { *number })
    }
}

fn every_order(preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(run);
}

/// Runs jobs of two tasks, one job after the other, on a new pool: each task once, its writes seen
/// by the caller and by the tasks of the next job, and every thread ends.
fn check_jobs(threads: usize, jobs: usize, preemptions: usize) {
    every_order(preemptions, move || {
        let pool = Pool::new(threads).expect("threads start");
        let runs = Numbers((0..2).map(|_| sync::UnsafeCell::new(0)).collect());
        for job in 1..=jobs {
            pool.run(2, &|task| runs.add(task));
            assert_eq!([0, 1].map(|task| runs.at(task)), [job; 2]);
        }
    });
}

/// Runs jobs of a task a thread, each waiting for all others, so that no thread may sleep on.
fn check_waking(threads: usize, jobs: usize, preemptions: usize) {
    every_order(preemptions, move || {
        let pool = Pool::new(threads).expect("threads start");
        for _ in 0..jobs {
            let (met, all) = (Mutex::new(0), Condvar::new());
            pool.run(threads, &|_| {
                let mut met = met.lock().expect("no panic");
                *met += 1;
                all.notify_all();
                while *met < threads {
                    met = all.wait(met).expect("no panic");
                }
            });
        }
    });
}

#[test]
fn every_task_runs_once_and_is_seen_on_two_threads() {
    check_jobs(2, 2, 3);
}

#[test]
fn every_task_runs_once_and_is_seen_on_three_threads() {
    check_jobs(3, 1, 2);
    check_jobs(3, 2, 1);
}

#[test]
fn sleeping_threads_wake_up() {
    check_waking(2, 2, 2);
    check_waking(3, 1, 1);
}
