//! The stream a request answers with: the engine's events, translated to the events of a service.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use muse_core::contract::Event;
use tokio_stream::Stream;

use super::event_stream::EventStream;
use super::{RequestScope, ServiceError};

/// Translates an engine event of a choice; appends to the queue, whose last events it may extend.
type Translate<E> =
    dyn FnMut(&EventStream, u32, Event, &mut VecDeque<(u32, E)>) -> Result<(), ServiceError> + Send;

/// Events with the index of the choice they belong to. An error is the last item. Dropping the
/// stream cancels the choices that still run.
pub struct OutputStream<E> {
    events: EventStream,
    translate: Box<Translate<E>>,
    scope: Option<Arc<RequestScope>>,
    ready: VecDeque<(u32, E)>,
    /// Yielded after the events that are ready.
    error: Option<ServiceError>,
    ended: bool,
}

impl<E> OutputStream<E> {
    pub(super) fn new(
        events: EventStream,
        scope: Option<Arc<RequestScope>>,
        translate: impl FnMut(
            &EventStream,
            u32,
            Event,
            &mut VecDeque<(u32, E)>,
        ) -> Result<(), ServiceError>
        + Send
        + 'static,
    ) -> Self {
        let translate = Box::new(translate);
        Self { events, translate, scope, ready: VecDeque::new(), error: None, ended: false }
    }

    /// Translates every engine event that has arrived; all earlier ones are used.
    fn drain_events(&mut self, cx: &mut Context<'_>) {
        self.events.release_received();
        while !self.ended {
            let translated = match self.events.poll_next(cx) {
                Poll::Ready(Some(Ok((choice, event)))) => {
                    if let (Event::Token(_), Some(scope)) = (&event, &self.scope) {
                        scope.record_token();
                    }
                    (self.translate)(&self.events, choice, event, &mut self.ready)
                }
                Poll::Ready(Some(Err(error))) => Err(error),
                Poll::Ready(None) => {
                    self.ended = true;
                    Ok(())
                }
                Poll::Pending => return,
            };
            if let Err(error) = translated {
                self.error = Some(error);
                self.ended = true;
            }
        }
    }
}

impl<E: Unpin> Stream for OutputStream<E> {
    type Item = Result<(u32, E), ServiceError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.ready.is_empty() {
            this.drain_events(cx);
        }
        match this.ready.pop_front() {
            Some(event) => Poll::Ready(Some(Ok(event))),
            None if this.ended => Poll::Ready(this.error.take().map(Err)),
            None => Poll::Pending,
        }
    }
}
