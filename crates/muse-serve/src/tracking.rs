//! Gives each request a [`RequestScope`], for HTTP and gRPC alike: an id in the headers of its
//! reply, a share of the memory of all requests, and a log line when the reply has ended.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderName, HeaderValue};
use axum::middleware::{self, Next};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tonic::Status;
use tonic::service::Routes;

use crate::service::{ByteBudget, RequestScope};

/// The header, and the gRPC metadata, with the id of a request.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Runs a request in a scope of its own, which handlers find in its extensions.
pub(crate) async fn track(
    State(budget): State<ByteBudget>,
    mut request: Request,
    next: Next,
) -> Response {
    let id = request.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let grpc = request.headers().get("content-type").is_some_and(is_grpc);
    let path = request.uri().path();
    let method = if grpc { path.to_owned() } else { format!("{} {path}", request.method()) };
    let scope = Arc::new(RequestScope::new(method, id, &budget));
    request.extensions_mut().insert(Arc::clone(&scope));
    let mut response = next.run(request).await;
    let id = HeaderValue::from_str(scope.id()).expect("visible ASCII characters");
    response.headers_mut().insert(REQUEST_ID, id);
    if !grpc {
        scope.set_status(response.status().as_u16());
    } else if let Some(status) = Status::from_header_map(response.headers()) {
        scope.set_status(format!("{:?}", status.code()));
    }
    response.map(|body| Body::new(TrackedBody::new(body, scope)))
}

/// The same gRPC routes with their requests tracked.
pub(crate) fn track_routes(routes: Routes, budget: ByteBudget) -> Routes {
    let track = middleware::from_fn_with_state(budget, track);
    Routes::from(routes.into_axum_router().layer(track))
}

/// The scope of a request that [`track`] has seen.
///
/// # Panics
/// For others.
pub(crate) fn scope(extensions: &Extensions) -> Arc<RequestScope> {
    Arc::clone(extensions.get().expect("every request is tracked"))
}

fn is_grpc(content_type: &HeaderValue) -> bool {
    content_type.as_bytes().starts_with(b"application/grpc")
}

/// The body of a reply, which keeps its scope until its last bytes are written or the client has
/// left.
struct TrackedBody {
    body: Body,
    scope: Arc<RequestScope>,
}

impl TrackedBody {
    fn new(body: Body, scope: Arc<RequestScope>) -> Self {
        if body.is_end_stream() {
            scope.set_complete();
        }
        Self { body, scope }
    }
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(status) = frame.trailers_ref().and_then(Status::from_header_map)
        {
            self.scope.set_status(format!("{:?}", status.code()));
        }
        if frame.is_none() || self.body.is_end_stream() {
            self.scope.set_complete();
        }
        // The connection may drop the body long before it has written what it took from it.
        let track = |data| Bytes::from_owner(TrackedBytes { data, _scope: self.scope.clone() });
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(track))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A part of a reply that keeps its scope until it is written.
struct TrackedBytes {
    data: Bytes,
    _scope: Arc<RequestScope>,
}

impl AsRef<[u8]> for TrackedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}
