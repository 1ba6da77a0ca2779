//! The engine's thread and its clock: the only place in this crate that has either.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{EngineCore, EngineOptions, Limits};
use crate::contract::{
    Backend, BlockCount, Done, Drafter, Engine, Event, FinishReason, KvPool, Request, SeqId, Sink,
    TargetModel, Timings, Usage,
};
use crate::{Error, Result};

/// Starts an engine on a thread of its own.
///
/// The pool's reach is to be the largest of the target's windows less one and the drafter's
/// reach; its block the larger of the prompt rows of a step and the drafter's width plus one.
///
/// # Errors
/// [`Error::Invalid`] when the parts cannot work together, [`Error::Device`] when the system gives
/// no thread.
pub fn spawn<B: Backend>(
    backend: Arc<B>,
    target: Box<dyn TargetModel<B>>,
    drafter: Option<Box<dyn Drafter<B>>>,
    pool: Box<dyn KvPool>,
    options: EngineOptions,
) -> Result<EngineHandle> {
    let limits = Limits::new(target.as_ref(), drafter.as_deref(), pool.as_ref(), &options)?;
    let load = Load { waiting: 0, active: 0, free: pool.free(), total: pool.total() };
    let shared = Arc::new(Shared {
        limits: limits.clone(),
        epoch: Instant::now(),
        inbox: Mutex::new(Inbox { load, ..Inbox::default() }),
        wake: Condvar::new(),
    });
    let with = Arc::clone(&shared);
    let thread = std::thread::Builder::new()
        .name("muse-engine".into())
        .spawn(move || {
            // Joined here, for its buffers borrow what need not be shared between threads.
            let engine = EngineCore::join(backend, target, drafter, pool, &options, limits);
            run(engine, &with, &options);
        })
        .map_err(|error| Error::Device {
            doing: "starting the engine's thread".into(),
            source: Arc::new(error),
        })?;
    Ok(EngineHandle { shared, thread: Mutex::new(Some(thread)) })
}

/// A running engine. Dropping it cancels what runs and waits for the thread.
pub struct EngineHandle {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How busy an engine is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Requests that wait, those sent back included.
    pub waiting: usize,
    /// Sequences that run.
    pub active: usize,
    /// KV blocks that are free or can be freed.
    pub free: BlockCount,
    /// All KV blocks.
    pub total: BlockCount,
}

struct Shared {
    limits: Limits,
    epoch: Instant,
    inbox: Mutex<Inbox>,
    wake: Condvar,
}

#[derive(Default)]
struct Inbox {
    submitted: Vec<(SeqId, Request, Sink, Duration)>,
    cancelled: Vec<SeqId>,
    cancel_all: bool,
    ids: u64,
    load: Load,
    /// No requests are taken any more; the thread ends when the last one has.
    draining: bool,
    stopped: bool,
    failure: Option<Error>,
}

impl Shared {
    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// The inbox is consistent after every statement, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EngineHandle {
    /// What requests may ask for.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// How busy it is.
    pub fn load(&self) -> Load {
        let inbox = self.shared.lock();
        let waiting = inbox.load.waiting + inbox.submitted.len();
        Load { waiting, ..inbox.load }
    }

    /// Why it stopped for good, if it did. The process is then to exit: the state of the device
    /// cannot be trusted.
    pub fn failure(&self) -> Option<Error> {
        self.shared.lock().failure.clone()
    }

    /// Takes no more requests, gives those it has up to `patience` to end, cancels the rest and
    /// waits for the thread.
    pub fn drain(&self, patience: Duration) {
        let mut inbox = self.shared.lock();
        inbox.draining = true;
        self.shared.wake.notify_all();
        let until = Instant::now() + patience;
        while !inbox.stopped {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let (guard, _) =
                self.shared.wake.wait_timeout(inbox, left).unwrap_or_else(PoisonError::into_inner);
            inbox = guard;
        }
        inbox.cancel_all = true;
        self.shared.wake.notify_all();
        drop(inbox);
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // A panic was caught inside and reported to everyone it concerns.
            let _ = thread.join();
        }
    }
}

impl Engine for EngineHandle {
    fn submit(&self, request: Request, sink: Sink) -> Result<SeqId> {
        self.shared.limits.check(&request)?;
        let now = self.shared.now();
        let mut inbox = self.shared.lock();
        if let Some(error) = &inbox.failure {
            return Err(error.clone());
        }
        if inbox.draining {
            return Err(Error::Exhausted("the engine is shutting down: ask another".into()));
        }
        let limits = &self.shared.limits;
        // Who finds a free place in the next step does not wait for one.
        let slices = limits.max_num_seqs - inbox.load.active;
        let waiting = (inbox.load.waiting + inbox.submitted.len()).saturating_sub(slices);
        if waiting >= limits.queue {
            return Err(Error::Exhausted(format!(
                "{waiting} requests wait already, the queue holds {}: retry later",
                limits.queue
            )));
        }
        inbox.ids += 1;
        let id = SeqId(inbox.ids);
        inbox.submitted.push((id, request, sink, now));
        self.shared.wake.notify_all();
        Ok(id)
    }

    fn cancel(&self, seq: SeqId) {
        let mut inbox = self.shared.lock();
        if !inbox.stopped {
            inbox.cancelled.push(seq);
            self.shared.wake.notify_all();
        }
    }
}

impl Drop for EngineHandle {
    fn drop(&mut self) {
        self.drain(Duration::ZERO);
    }
}

fn load<B: Backend>(engine: &EngineCore<B>) -> Load {
    let (waiting, active) = engine.load();
    Load { waiting, active, free: engine.pool().free(), total: engine.pool().total() }
}

fn run<B: Backend>(mut engine: EngineCore<B>, shared: &Shared, options: &EngineOptions) {
    let outcome = catch_unwind(AssertUnwindSafe(|| turn(&mut engine, shared)));
    let failure = match outcome {
        Ok(result) => result.err(),
        Err(panic) => Some(Error::Device {
            doing: "running the engine".into(),
            source: panic_message(panic.as_ref()).into(),
        }),
    };
    let mut inbox = shared.lock();
    inbox.failure = failure.clone();
    inbox.stopped = true;
    inbox.load.waiting = 0;
    inbox.load.active = 0;
    let unseen = std::mem::take(&mut inbox.submitted);
    drop(inbox);
    if let Some(error) = failure {
        let tell = AssertUnwindSafe(|| {
            engine.fail(&error, shared.now());
            for (_, _, mut sink, _) in unseen {
                let reason = FinishReason::Failed(error.clone());
                let (usage, timings) = (Usage::default(), Timings::default());
                let _ = sink(Event::Done(Done { reason, usage, timings }));
            }
        });
        // Only a sink can panic here; the rest of the story is reported all the same.
        let _ = catch_unwind(tell);
        if let Some(on_failure) = &options.on_failure {
            on_failure(&error);
        }
    }
    shared.wake.notify_all();
}

/// Steps while there is work, sleeps while there is none.
fn turn<B: Backend>(engine: &mut EngineCore<B>, shared: &Shared) -> Result<()> {
    let mut busy = false;
    loop {
        let mut inbox = shared.lock();
        inbox.load = load(engine);
        while !busy && inbox.submitted.is_empty() {
            if inbox.draining {
                drop(inbox);
                return engine.save_kept();
            }
            inbox.cancelled.clear();
            inbox = shared.wake.wait(inbox).unwrap_or_else(PoisonError::into_inner);
        }
        for (id, request, sink, at) in inbox.submitted.drain(..) {
            engine.submit(id, request, sink, at)?;
        }
        for id in inbox.cancelled.drain(..) {
            engine.cancel(id);
        }
        if inbox.cancel_all {
            engine.cancel_all();
        }
        inbox.load = load(engine);
        drop(inbox);
        busy = engine.step(&|| shared.now())?;
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> Box<dyn std::error::Error + Send + Sync> {
    let message = panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
    message.unwrap_or_else(|| "a panic without a message".into()).into()
}
