//! The engine's thread and its clock: the only file of this crate with either.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::deferred::DeferredContext;
use super::{EngineCore, EngineOptions, Limits};
use crate::contract::{
    Backend, BlockCount, Done, Drafter, Engine, Event, FinishReason, KvPool, Request, SeqId, Sink,
    TargetModel, Timings, Usage, VisionEncoder,
};
use crate::{Error, Result};

/// Starts an engine on a thread of its own.
///
/// The pool must keep as much of the window group as target and drafter attend to
/// ([`crate::contract::Footprint::window_reach`]), and expect steps of as many positions as a
/// prefill chunk and a draft block have.
///
/// # Errors
/// [`Error::Invalid`] when the parts cannot work together, [`Error::Device`] when the system cannot
/// start a thread, errors of the backend's allocations.
pub fn spawn<B: Backend>(
    backend: Arc<B>,
    target: Box<dyn TargetModel<B>>,
    drafter: Option<Box<dyn Drafter<B>>>,
    encoder: Option<Box<dyn VisionEncoder<B>>>,
    pool: Box<dyn KvPool>,
    options: EngineOptions,
) -> Result<EngineHandle> {
    let merge = encoder.as_ref().map(|encoder| encoder.merge());
    let limits = Limits::new(target.as_ref(), drafter.as_deref(), pool.as_ref(), merge, &options)?;
    let load = Load { waiting: 0, active: 0, free: pool.free(), total: pool.total() };
    let shared = Arc::new(Shared {
        limits: limits.clone(),
        epoch: Instant::now(),
        inbox: Mutex::new(Inbox { load, ..Inbox::default() }),
        wake: Condvar::new(),
    });
    let inner = Arc::clone(&shared);
    let deferred = DeferredContext::new(&*backend, drafter.as_deref())?;
    let thread = std::thread::Builder::new()
        .name("muse-engine".into())
        .spawn(move || {
            // Joined here: its buffers are not `Send`.
            let engine =
                EngineCore::join(backend, target, drafter, pool, &options, limits, deferred);
            let engine = match encoder {
                Some(encoder) => engine.with_encoder(encoder),
                None => engine,
            };
            run(engine, &inner, &options);
        })
        .map_err(|error| Error::Device {
            doing: "starting the engine's thread".into(),
            source: Arc::new(error),
        })?;
    Ok(EngineHandle { shared, thread: Mutex::new(Some(thread)) })
}

/// A running engine. Dropping it cancels its requests and waits for the thread.
pub struct EngineHandle {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How busy an engine is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Requests that wait, preempted ones included.
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
    /// No more requests are accepted; the thread ends when the last one has ended.
    draining: bool,
    stopped: bool,
    failure: Option<Error>,
}

impl Shared {
    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// The inbox is consistent after every statement: a panic of another holder does not matter.
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EngineHandle {
    /// Bounds of requests.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// How busy it is.
    pub fn load(&self) -> Load {
        let inbox = self.shared.lock();
        let waiting = inbox.load.waiting + inbox.submitted.len();
        Load { waiting, ..inbox.load }
    }

    /// The error that stopped it for good. The process should then exit: the state of the device
    /// is unknown.
    pub fn failure(&self) -> Option<Error> {
        self.shared.lock().failure.clone()
    }

    /// Accepts no more requests, lets those it has run for up to `timeout`, cancels the rest and
    /// waits for the thread.
    pub fn drain(&self, timeout: Duration) {
        let mut inbox = self.shared.lock();
        inbox.draining = true;
        self.shared.wake.notify_all();
        let until = Instant::now() + timeout;
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
            // Panics were caught on the thread and reported to all requests.
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
            return Err(Error::Exhausted("the engine is shutting down: use another server".into()));
        }
        let limits = &self.shared.limits;
        // Requests that can start in the next step do not count as waiting.
        let free_slots = limits.max_num_seqs - inbox.load.active;
        let waiting = (inbox.load.waiting + inbox.submitted.len()).saturating_sub(free_slots);
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
    let outcome = catch_unwind(AssertUnwindSafe(|| run_steps(&mut engine, shared)));
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
    let unstarted = std::mem::take(&mut inbox.submitted);
    drop(inbox);
    if let Some(error) = failure {
        let report = AssertUnwindSafe(|| {
            engine.fail(&error, shared.now());
            for (_, _, mut sink, _) in unstarted {
                let reason = FinishReason::Failed(error.clone());
                let (usage, timings) = (Usage::default(), Timings::default());
                let _ = sink(Event::Done(Done { reason, usage, timings }));
            }
        });
        // Only a sink can panic here; the failure is reported nevertheless.
        let _ = catch_unwind(report);
        if let Some(on_failure) = &options.on_failure {
            on_failure(&error);
        }
    }
    shared.wake.notify_all();
}

/// Runs steps while there are requests, sleeps while there are none.
fn run_steps<B: Backend>(engine: &mut EngineCore<B>, shared: &Shared) -> Result<()> {
    let mut busy = false;
    loop {
        let mut inbox = shared.lock();
        inbox.load = load(engine);
        while !busy && inbox.submitted.is_empty() {
            if inbox.draining {
                drop(inbox);
                return engine.offload_all();
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
