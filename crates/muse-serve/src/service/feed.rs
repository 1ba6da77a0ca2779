//! The engine's events, brought from its thread to a task. Dropping a feed cancels what it runs.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use muse_core::contract::{Engine, Event, Request, SeqId};
use tokio::sync::mpsc::{self, error::TrySendError};

use super::{Pass, Refusal};

/// Events that may wait for a client, over all its choices: seconds of the fastest model, minutes
/// of a large one. A client behind by more is cut off: the engine waits for nobody.
const BACKLOG: usize = 16 << 10;

/// The running choices of a request.
pub(super) struct Feed {
    engine: Arc<dyn Engine>,
    events: mpsc::Receiver<(u32, Event)>,
    lagging: Arc<AtomicBool>,
    /// A sequence for each choice, none once it ended.
    running: Vec<Option<SeqId>>,
    pass: Pass,
}

impl Feed {
    /// Submits a request for each choice. Those submitted are cancelled when a later one is
    /// refused.
    pub(super) fn open(
        engine: Arc<dyn Engine>,
        pass: Pass,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<Self, Refusal> {
        let (sender, events) = mpsc::channel(BACKLOG);
        let lagging = Arc::new(AtomicBool::new(false));
        let mut feed = Self { engine, events, lagging: lagging.clone(), running: Vec::new(), pass };
        for (choice, request) in requests.into_iter().enumerate() {
            let (sender, lagging) = (sender.clone(), lagging.clone());
            let sink = move |event| match sender.try_send((choice as u32, event)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(TrySendError::Closed(_)) => ControlFlow::Break(()),
                Err(TrySendError::Full(_)) => {
                    lagging.store(true, Ordering::Relaxed);
                    ControlFlow::Break(())
                }
            };
            let seq = feed.engine.submit(request, Box::new(sink))?;
            feed.pass.runs(seq, feed.engine.as_ref());
            feed.running.push(Some(seq));
        }
        Ok(feed)
    }

    /// The next event and the choice it belongs to; none when all choices are done.
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<(u32, Event), Refusal>>> {
        if self.running.iter().all(Option::is_none) {
            return Poll::Ready(None);
        }
        if self.lagging.load(Ordering::Relaxed) {
            return Poll::Ready(Some(Err(Refusal::SlowClient)));
        }
        self.events.poll_recv(cx).map(|event| match event {
            Some((choice, event)) => {
                if let Event::Done(_) = event {
                    self.end(choice as usize);
                }
                Some(Ok((choice, event)))
            }
            // The sinks are gone without a word: either they gave up on this client meanwhile, or
            // the engine's thread ended.
            None if self.lagging.load(Ordering::Relaxed) => Some(Err(Refusal::SlowClient)),
            None => Some(Err(Refusal::Stopped)),
        })
    }

    /// Asks for the end of a choice; its done event still comes.
    pub(super) fn cancel(&self, choice: u32) {
        if let Some(seq) = self.running[choice as usize] {
            self.engine.cancel(seq);
        }
    }

    fn end(&mut self, choice: usize) {
        if let Some(seq) = self.running[choice].take() {
            self.pass.ended(seq);
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        for choice in 0..self.running.len() {
            self.cancel(choice as u32);
            self.end(choice);
        }
    }
}
