//! The thread pool and its protocol: how threads join an open job, leave it, sleep and wake.
//! Everything that threads share comes from `sync`, so that `tests/loom.rs` can run it in every
//! order.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, io};

use muse_core::{Error, Result};

use super::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Builder, JoinHandle, SPINS, UnsafeCell, fence, park,
    spin_loop, yield_now,
};

/// Set while a job is open: threads may join.
const OPEN: u64 = 1 << 31;
/// The low bits: the number of threads that joined the job.
const JOINED: u64 = OPEN - 1;
/// One in the high bits, which count jobs.
const JOB: u64 = 1 << 32;

type Task<'a> = dyn Fn(usize) + Sync + 'a;

/// A pool of the calling thread and its workers.
pub(crate) struct Pool {
    pub(super) shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

pub(super) struct Shared {
    /// The number of the job, [`OPEN`] and the number of threads that joined: one word, so that a
    /// thread joins either this job or none.
    word: AtomicU64,
    /// The function of the job and its number of tasks. Written while no job is open and no thread
    /// has joined, read by threads that joined.
    job: UnsafeCell<(*const Task<'static>, usize)>,
    /// The next task to take.
    next: AtomicUsize,
    /// Whether a caller uses the workers.
    busy: AtomicBool,
    /// For each worker, whether it sleeps.
    pub(super) asleep: Vec<AtomicBool>,
    stop: AtomicBool,
    /// The panic of the first worker that panicked.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: only the pointer in `job` is not `Send` by itself. Threads use it between joining and
// leaving an open job, while `Pool::run` holds the borrow that it came from, and `Task` is `Sync`.
unsafe impl Send for Shared {}
// SAFETY: only `OpenJob::new` writes `job`, after the last `OpenJob` saw all threads leave, and
// before the `Release` store to `word` lets threads join and read it. `tests/loom.rs` checks it.
unsafe impl Sync for Shared {}

impl Pool {
    /// A pool of `threads` threads, the calling one included; for 1 it starts none.
    pub(crate) fn new(threads: usize) -> Result<Self> {
        assert!(threads > 0 && (threads as u64) < JOINED, "{threads} threads");
        let no_task: &'static Task<'_> = &|_| {};
        let shared = Arc::new(Shared {
            word: AtomicU64::new(0),
            job: UnsafeCell::new((no_task, 0)),
            next: AtomicUsize::new(0),
            busy: AtomicBool::new(false),
            asleep: (1..threads).map(|_| AtomicBool::new(false)).collect(),
            stop: AtomicBool::new(false),
            panic: Mutex::new(None),
        });
        let mut pool = Self { shared, workers: Vec::new() };
        for index in 0..threads - 1 {
            let shared = Arc::clone(&pool.shared);
            let worker = Builder::new()
                .name(format!("muse-cpu-{index}"))
                .spawn(move || shared.work(index))
                .map_err(|error| cannot_start(index + 2, threads, &error))?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// The number of threads, the calling one included.
    pub(crate) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `task(0) .. task(tasks - 1)`, each once. A panic of a task is resumed here after all
    /// threads have left the job.
    pub(crate) fn run(&self, tasks: usize, task: &Task<'_>) {
        let alone = self.workers.is_empty() || tasks < 2;
        // If another caller uses the workers, all tasks run on this thread.
        if alone || self.shared.busy.swap(true, Ordering::Acquire) {
            return (0..tasks).for_each(task);
        }
        let job = OpenJob::new(self, tasks, task);
        self.shared.take_tasks(tasks, task);
        drop(job);
    }
}

/// An open job. Dropping it waits until all threads have left, also when a task of the caller
/// panics.
struct OpenJob<'a>(&'a Pool);

impl<'a> OpenJob<'a> {
    fn new(pool: &'a Pool, tasks: usize, task: &'a Task<'a>) -> Self {
        let shared = &*pool.shared;
        // SAFETY: only the lifetime changes. Threads use the task between joining and leaving, and
        // `run`, the only caller, drops the `OpenJob` before the borrow ends, also in a panic:
        // `drop` closes the job and waits until all threads have left.
        let task = unsafe { std::mem::transmute::<&'a Task<'a>, &'static Task<'static>>(task) };
        // SAFETY: `run` set `busy`, so this is the only writer; no job is open and no thread has
        // joined, since the last `OpenJob` waited for that before it cleared `busy`.
        shared.job.with_mut(|job| unsafe { *job = (task, tasks) });
        shared.next.store(0, Ordering::Relaxed);
        let word = shared.word.load(Ordering::Relaxed);
        debug_assert_eq!(word & (OPEN | JOINED), 0, "no job is open");
        shared.word.store(word.wrapping_add(JOB) | OPEN, Ordering::Release);
        // Orders the store before the loads of `asleep`: either a thread that goes to sleep sees
        // the job, or this thread sees that it sleeps.
        fence(Ordering::SeqCst);
        for (asleep, worker) in shared.asleep.iter().zip(&pool.workers) {
            if asleep.load(Ordering::Relaxed) && asleep.swap(false, Ordering::Relaxed) {
                worker.thread().unpark();
            }
        }
        Self(pool)
    }
}

impl Drop for OpenJob<'_> {
    fn drop(&mut self) {
        let shared = &*self.0.shared;
        let mut joined = shared.word.fetch_and(!OPEN, Ordering::Relaxed) & JOINED;
        let mut spins = 0;
        while joined > 0 {
            // A thread that takes longer than a task may have been descheduled.
            spins += 1;
            if spins > 500 {
                yield_now()
            } else {
                spin_loop()
            }
            joined = shared.word.load(Ordering::Relaxed) & JOINED;
        }
        // Pairs with the `Release` of the threads that left: their results are visible from here
        // on.
        fence(Ordering::Acquire);
        let panic = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        shared.busy.store(false, Ordering::Release);
        if let Some(panic) = panic
            && !std::thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

impl Shared {
    fn take_tasks(&self, tasks: usize, task: &Task<'_>) {
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= tasks {
                return;
            }
            task(index);
        }
    }

    /// The loop of a worker.
    fn work(&self, index: usize) {
        let mut done = 0;
        while let Some(word) = self.wait(index, done) {
            let joined =
                self.word.compare_exchange(word, word + 1, Ordering::Acquire, Ordering::Relaxed);
            if joined.is_err() {
                continue;
            }
            done = word / JOB;
            // SAFETY: this thread joined the open job, and no job is written before it leaves.
            let (task, tasks) = self.job.with(|job| unsafe { *job });
            // SAFETY: it comes from a borrow that `run` holds until this thread has left, below.
            let task = unsafe { &*task };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.take_tasks(tasks, task))) {
                // The other threads stop after their current task.
                self.next.store(tasks, Ordering::Relaxed);
                self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
            }
            self.word.fetch_sub(1, Ordering::Release);
        }
    }

    /// Waits for an open job other than `done` and returns its word; `None` when the pool is
    /// dropped.
    fn wait(&self, index: usize, done: u64) -> Option<u64> {
        let open = |order| {
            let word = self.word.load(order);
            (word & OPEN != 0 && word / JOB != done).then_some(word)
        };
        loop {
            for _ in 0..SPINS {
                if let Some(word) = open(Ordering::Relaxed) {
                    return Some(word);
                }
                if self.stop.load(Ordering::Relaxed) {
                    return None;
                }
                spin_loop();
            }
            self.asleep[index].store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if open(Ordering::Relaxed).is_none() && !self.stop.load(Ordering::Relaxed) {
                park();
            }
            self.asleep[index].store(false, Ordering::Relaxed);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // Workers catch the panics of tasks, so they do not panic themselves.
            worker.join().expect("a worker does not panic");
        }
    }
}

/// The error for a thread that the system does not start, number `thread` of `threads`.
pub(crate) fn cannot_start(thread: usize, threads: usize, error: &io::Error) -> Error {
    Error::Exhausted(format!(
        "cannot start thread {thread} of {threads}: {error}; use fewer threads, or raise the limit \
         on processes and threads: `ulimit -u`, `TasksMax=` of a systemd unit, or the pids limit of a \
         container"
    ))
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool of {} threads", self.threads())
    }
}
