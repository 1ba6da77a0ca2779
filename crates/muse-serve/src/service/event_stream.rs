//! The engine's events of one request, passed from the engine's thread to a task.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use muse_core::contract::{Engine, Event, GroupId, Request, SeqId};
use tokio::sync::mpsc::{self, error::TrySendError};

use super::{Permit, ServiceError};

/// Events that may wait for a client, over all its choices: seconds of the fastest model, minutes
/// of a large one. A client that is further behind is cancelled: the engine never blocks.
const EVENT_BACKLOG: usize = 16 << 10;

/// Number of the next request: the group of its choices.
static GROUPS: AtomicU64 = AtomicU64::new(0);

/// The running choices of a request. Dropping the stream cancels them.
pub(super) struct EventStream {
    engine: Arc<dyn Engine>,
    events: mpsc::Receiver<(u32, Event)>,
    lagging: Arc<AtomicBool>,
    /// The sequence of each choice, none once it ended.
    running: Vec<Option<SeqId>>,
    permit: Permit,
}

impl EventStream {
    /// Submits a request for each choice. When the engine refuses one, those submitted before are
    /// cancelled.
    pub(super) fn open(
        engine: Arc<dyn Engine>,
        permit: Permit,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<Self, ServiceError> {
        let (sender, events) = mpsc::channel(EVENT_BACKLOG);
        let lagging = Arc::new(AtomicBool::new(false));
        let running = Vec::new();
        let mut stream = Self { engine, events, lagging: lagging.clone(), running, permit };
        // Choices of one request share its turn.
        let group = GroupId(GROUPS.fetch_add(1, Ordering::Relaxed));
        for (choice, request) in requests.into_iter().enumerate() {
            let request = Request { group: Some(group), ..request };
            let (sender, lagging) = (sender.clone(), lagging.clone());
            let sink = move |event| match sender.try_send((choice as u32, event)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(TrySendError::Closed(_)) => ControlFlow::Break(()),
                Err(TrySendError::Full(_)) => {
                    lagging.store(true, Ordering::Relaxed);
                    ControlFlow::Break(())
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
        if self.lagging.load(Ordering::Relaxed) {
            return Poll::Ready(Some(Err(ServiceError::SlowClient)));
        }
        self.events.poll_recv(cx).map(|event| match event {
            Some((choice, event)) => {
                if let Event::Done(_) = event {
                    self.unregister(choice as usize);
                }
                Some(Ok((choice, event)))
            }
            // All sinks are dropped without a done event: either they cancelled this client since
            // the check above, or the engine's thread ended.
            None if self.lagging.load(Ordering::Relaxed) => Some(Err(ServiceError::SlowClient)),
            None => Some(Err(ServiceError::Stopped)),
        })
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
