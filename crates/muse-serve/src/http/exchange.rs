//! The request that a connection answers, as its socket and its service see it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, Response, Version};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::Service;

/// The request that a connection answers. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Exchange {
    shared: Arc<Mutex<ExchangeState>>,
}

#[derive(Default)]
struct ExchangeState {
    /// A request has no whole reply yet.
    answering: bool,
    /// Bytes of its reply were written.
    reply_begun: bool,
    /// Whether its version has interim responses: HTTP/1.0 has none.
    interim: bool,
    /// Waits for the end of the reply.
    waker: Option<Waker>,
}

impl Exchange {
    /// A request arrived, whose reply ends when the guard is dropped.
    fn begin(&self, version: Version) -> ReplyGuard {
        let mut state = self.state();
        let interim = version == Version::HTTP_11;
        *state = ExchangeState { answering: true, reply_begun: false, interim, waker: None };
        ReplyGuard(self.clone())
    }

    /// The same service, whose replies are known here.
    pub(super) fn wrap<S>(&self, service: S) -> ExchangeService<S> {
        ExchangeService { exchange: self.clone(), service }
    }

    /// Ready when no request is being answered.
    pub(super) fn poll_reply(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if !state.answering {
            return Poll::Ready(());
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Bytes of the reply are being written.
    pub(super) fn set_reply_begun(&self) {
        self.state().reply_begun = true;
    }

    /// Whether the client may be sent an interim response.
    pub(super) fn may_probe(&self) -> bool {
        let state = self.state();
        state.interim && !state.reply_begun
    }

    fn state(&self) -> MutexGuard<'_, ExchangeState> {
        // Fields are set one by one and each is valid, so a panic elsewhere is harmless.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A service of one connection that reports its replies.
pub(super) struct ExchangeService<S> {
    exchange: Exchange,
    service: S,
}

impl<S> Service<Request<Incoming>> for ExchangeService<S>
where
    S: Service<Request<Incoming>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<ReplyBody>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let guard = self.exchange.begin(request.version());
        let reply = self.service.call(request);
        Box::pin(async move { Ok(reply.await?.map(|body| ReplyBody { body, _guard: guard })) })
    }
}

/// The body of a reply, dropped when it was sent or cannot be.
pub(super) struct ReplyBody {
    body: Body,
    _guard: ReplyGuard,
}

impl HttpBody for ReplyBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Marks a reply that has not ended.
struct ReplyGuard(Exchange);

impl Drop for ReplyGuard {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.answering = false;
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }
}
