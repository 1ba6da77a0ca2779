//! The stream a request answers with: the engine's events, told in the words of its service.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use muse_core::contract::Event;
use tokio_stream::Stream;

use super::Refusal;
use super::feed::Feed;

/// What a service makes of an event of a choice. Events that wait together can be joined.
type Tell<E> = dyn FnMut(&Feed, u32, Event, &mut VecDeque<(u32, E)>) -> Result<(), Refusal> + Send;

/// Events with the choice they belong to. A refusal is the last item. Dropping the answer cancels
/// what still runs.
pub struct Answer<E> {
    feed: Feed,
    tell: Box<Tell<E>>,
    ready: VecDeque<(u32, E)>,
    /// Told behind what is ready.
    refusal: Option<Refusal>,
    over: bool,
}

impl<E> Answer<E> {
    pub(super) fn new(
        feed: Feed,
        tell: impl FnMut(&Feed, u32, Event, &mut VecDeque<(u32, E)>) -> Result<(), Refusal>
        + Send
        + 'static,
    ) -> Self {
        Self { feed, tell: Box::new(tell), ready: VecDeque::new(), refusal: None, over: false }
    }

    /// Takes all that the engine has to say by now.
    fn gather(&mut self, cx: &mut Context<'_>) {
        while !self.over {
            let told = match self.feed.poll_next(cx) {
                Poll::Ready(Some(Ok((choice, event)))) => {
                    (self.tell)(&self.feed, choice, event, &mut self.ready)
                }
                Poll::Ready(Some(Err(refusal))) => Err(refusal),
                Poll::Ready(None) => {
                    self.over = true;
                    Ok(())
                }
                Poll::Pending => return,
            };
            if let Err(refusal) = told {
                self.refusal = Some(refusal);
                self.over = true;
            }
        }
    }
}

impl<E: Unpin> Stream for Answer<E> {
    type Item = Result<(u32, E), Refusal>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.ready.is_empty() {
            this.gather(cx);
        }
        match this.ready.pop_front() {
            Some(event) => Poll::Ready(Some(Ok(event))),
            None if this.over => Poll::Ready(this.refusal.take().map(Err)),
            None => Poll::Pending,
        }
    }
}
