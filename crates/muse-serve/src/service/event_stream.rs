//! The engine's events of one request, passed from the engine's thread to a task.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use muse_core::Error;
use muse_core::contract::{Engine, Event, GroupId, Request, SeqId, Token};
use tokio::sync::mpsc::{self, error::TrySendError};

use super::{Permit, RequestScope, Reservation, ServiceError};

/// Events that may wait for a client, over all its choices: seconds of the fastest model, minutes
/// of a large one. A client that is further behind is cancelled: the engine never blocks.
const EVENT_BACKLOG: usize = 16 << 10;

/// Number of the next request: the group of its choices.
static GROUPS: AtomicU64 = AtomicU64::new(0);

/// The running choices of a request. Dropping the stream cancels them.
pub(super) struct EventStream {
    engine: Arc<dyn Engine>,
    events: mpsc::Receiver<(u32, Event)>,
    /// Why a sequence was given up by its sink.
    failure: Arc<OnceLock<ServiceError>>,
    /// The sequence of each choice, none once it ended.
    running: Vec<Option<SeqId>>,
    permit: Permit,
    /// The memory of the events that are not used yet; none when it is not tracked.
    memory: Option<Arc<Reservation>>,
    /// The part of it of those that were received since the last release.
    received: usize,
}

/// About the memory of an event and of what it is translated to.
fn event_bytes(event: &Event) -> usize {
    let alternatives = match event {
        Event::Token(sampled) => sampled.top.len(),
        _ => 0,
    };
    2 * (size_of::<(u32, Event)>() + alternatives * size_of::<(Token, f32)>())
}

impl EventStream {
    /// Submits a request for each choice. When the engine refuses one, those submitted before are
    /// cancelled.
    pub(super) fn open(
        engine: Arc<dyn Engine>,
        permit: Permit,
        scope: Option<&RequestScope>,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<Self, ServiceError> {
        let (sender, events) = mpsc::channel(EVENT_BACKLOG);
        let failure = Arc::new(OnceLock::new());
        let memory = scope.map(|scope| Arc::new(scope.memory.sibling()));
        let mut stream = Self {
            engine,
            events,
            failure: Arc::clone(&failure),
            running: Vec::new(),
            permit,
            memory: memory.clone(),
            received: 0,
        };
        // Choices of one request share its turn.
        let group = GroupId(GROUPS.fetch_add(1, Ordering::Relaxed));
        for (choice, request) in requests.into_iter().enumerate() {
            let request = Request { group: Some(group), ..request };
            let (sender, failure, memory) = (sender.clone(), Arc::clone(&failure), memory.clone());
            let sink = move |event| {
                let fail = |error| {
                    // The first one counts.
                    let _ = failure.set(error);
                    ControlFlow::Break(())
                };
                // The end of a choice is not counted, so that no answer fails at its end.
                let counted = memory.as_ref().filter(|_| !matches!(event, Event::Done(_)));
                match counted.map(|memory| memory.grow(event_bytes(&event))) {
                    None | Some(Ok(())) => {}
                    Some(Err(error @ Error::Exhausted(_))) => return fail(error.into()),
                    // Its own events alone fill all memory.
                    Some(Err(_)) => return fail(ServiceError::SlowClient),
                }
                match sender.try_send((choice as u32, event)) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(TrySendError::Closed(_)) => ControlFlow::Break(()),
                    Err(TrySendError::Full(_)) => fail(ServiceError::SlowClient),
                }
            };
            let seq = stream.engine.submit(request, Box::new(sink))?;
            stream.permit.register(seq, stream.engine.as_ref());
            stream.running.push(Some(seq));
        }
        Ok(stream)
    }

    /// The next event and the index of its choice; none when all choices are done.
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<(u32, Event), ServiceError>>> {
        if self.running.iter().all(Option::is_none) {
            return Poll::Ready(None);
        }
        if let Some(error) = self.failure.get() {
            return Poll::Ready(Some(Err(error.clone())));
        }
        self.events.poll_recv(cx).map(|event| match event {
            Some((choice, event)) => {
                match event {
                    Event::Done(_) => self.unregister(choice as usize),
                    _ => self.received += event_bytes(&event),
                }
                Some(Ok((choice, event)))
            }
            // All sinks are dropped without a done event: either they gave up since the check above,
            // or the engine's thread ended.
            None => Some(Err(self.failure.get().cloned().unwrap_or(ServiceError::Stopped))),
        })
    }

    /// Returns the memory of the events that were received: what they were translated to is used.
    pub(super) fn release_received(&mut self) {
        let bytes = std::mem::take(&mut self.received);
        if let Some(memory) = &self.memory {
            memory.shrink_by(bytes);
        }
    }

    /// Cancels a choice; its done event still comes.
    pub(super) fn cancel(&self, choice: u32) {
        if let Some(seq) = self.running[choice as usize] {
            self.engine.cancel(seq);
        }
    }

    fn unregister(&mut self, choice: usize) {
        if let Some(seq) = self.running[choice].take() {
            self.permit.unregister(seq);
        }
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        for choice in 0..self.running.len() {
            self.cancel(choice as u32);
            self.unregister(choice);
        }
    }
}
