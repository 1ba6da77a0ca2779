//! The pool and its protocol: how threads join an open job, leave it, sleep and wake. All that
//! threads share comes from `sync`, so that `tests/loom.rs` can run it in every order.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use muse_core::{Error, Result};

use super::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Builder, JoinHandle, SPINS, UnsafeCell, fence, park,
    spin_loop, yield_now,
};

/// A job is open: threads may join.
const OPEN: u64 = 1 << 31;
/// Threads that joined, in the low bits.
const JOINED: u64 = OPEN - 1;
/// The number of the job, in the high bits.
const JOB: u64 = 1 << 32;

type Task<'a> = dyn Fn(usize) + Sync + 'a;

/// The caller's thread and its workers.
pub(crate) struct Pool {
    pub(super) shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

pub(super) struct Shared {
    /// Number of the job, [`OPEN`], threads that joined: one word, so that a thread joins either
    /// this very job or none.
    word: AtomicU64,
    /// The job's function and number of tasks. Written while no job is open and nobody joined,
    /// read by those who joined.
    job: UnsafeCell<(*const Task<'static>, usize)>,
    /// The next task to take.
    next: AtomicUsize,
    /// A caller owns the workers.
    busy: AtomicBool,
    /// Which workers sleep.
    pub(super) asleep: Vec<AtomicBool>,
    stop: AtomicBool,
    /// What the first panicking worker said.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: only the function pointer in `job` is not `Send` by itself. Threads call it between joining
// and leaving an open job, while `Pool::run` holds the borrow it came from, and `Task` is `Sync`.
unsafe impl Send for Shared {}
// SAFETY: `job` is written in `Open::new` alone, after the last `Open` saw that nobody is joined, and
// before the word's `Release` store lets anyone join to read it. `tests/loom.rs` checks it.
unsafe impl Sync for Shared {}

impl Pool {
    /// A pool of `threads`, the caller's included; 1 starts none.
    pub(crate) fn new(threads: usize) -> Result<Self> {
        assert!(threads > 0 && (threads as u64) < JOINED, "{threads} threads");
        let none: &'static Task<'_> = &|_| {};
        let shared = Arc::new(Shared {
            word: AtomicU64::new(0),
            job: UnsafeCell::new((none, 0)),
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
                .map_err(|error| Error::Exhausted(format!("cannot start a thread: {error}")))?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// Threads, the caller's included.
    pub(crate) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `task(0) .. task(tasks - 1)`, each once. A panic of a task comes out here, after all
    /// threads left the job.
    pub(crate) fn run(&self, tasks: usize, task: &Task<'_>) {
        let alone = self.workers.is_empty() || tasks < 2;
        // Someone else's operation has the workers: this one runs on its own thread.
        if alone || self.shared.busy.swap(true, Ordering::Acquire) {
            return (0..tasks).for_each(task);
        }
        let job = Open::new(self, tasks, task);
        self.shared.take_tasks(tasks, task);
        drop(job);
    }
}

/// An open job; dropping it waits until every thread left, also when the caller's own task
/// panicked.
struct Open<'a>(&'a Pool);

impl<'a> Open<'a> {
    fn new(pool: &'a Pool, tasks: usize, task: &'a Task<'a>) -> Self {
        let shared = &*pool.shared;
        // SAFETY: only the lifetime changes. Threads use the task between joining and leaving, and
        // `run`, the only maker of an `Open`, drops it before the borrow ends, also in a panic:
        // `drop` closes the job and waits until all left.
        let task = unsafe { std::mem::transmute::<&'a Task<'a>, &'static Task<'static>>(task) };
        // SAFETY: `run` took `busy`, so this is the only writer; no job is open and nobody joined,
        // since the last `Open` waited for that before it gave `busy` back.
        shared.job.with_mut(|job| unsafe { *job = (task, tasks) });
        shared.next.store(0, Ordering::Relaxed);
        let word = shared.word.load(Ordering::Relaxed);
        debug_assert_eq!(word & (OPEN | JOINED), 0, "the last job is over");
        shared.word.store(word.wrapping_add(JOB) | OPEN, Ordering::Release);
        // Orders the store before the looks at `asleep`: either a thread going to sleep sees the
        // job, or it is seen asleep here.
        fence(Ordering::SeqCst);
        for (asleep, worker) in shared.asleep.iter().zip(&pool.workers) {
            if asleep.load(Ordering::Relaxed) && asleep.swap(false, Ordering::Relaxed) {
                worker.thread().unpark();
            }
        }
        Self(pool)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let shared = &*self.0.shared;
        let mut joined = shared.word.fetch_and(!OPEN, Ordering::Relaxed) & JOINED;
        let mut looks = 0;
        while joined > 0 {
            // A thread that takes longer than its last task should may have lost its core.
            looks += 1;
            if looks > 500 {
                yield_now()
            } else {
                spin_loop()
            }
            joined = shared.word.load(Ordering::Relaxed) & JOINED;
        }
        // Pairs with the `Release` of those who left: their results are visible from here on.
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

    /// A worker's life.
    fn work(&self, index: usize) {
        let mut done = 0;
        while let Some(word) = self.wait(index, done) {
            let joined =
                self.word.compare_exchange(word, word + 1, Ordering::Acquire, Ordering::Relaxed);
            if joined.is_err() {
                continue;
            }
            done = word / JOB;
            // SAFETY: this thread joined the open job, so `Open` writes no other before it leaves.
            let (task, tasks) = self.job.with(|job| unsafe { *job });
            // SAFETY: it came from a borrow that `run` holds until this thread left, below.
            let task = unsafe { &*task };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.take_tasks(tasks, task))) {
                // The others need not go on.
                self.next.store(tasks, Ordering::Relaxed);
                self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
            }
            self.word.fetch_sub(1, Ordering::Release);
        }
    }

    /// Waits for an open job other than `done`; `None` when the pool ends.
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
            // A worker catches the panics of tasks, so it has none of its own.
            worker.join().expect("a worker ends cleanly");
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool of {} threads", self.threads())
    }
}
