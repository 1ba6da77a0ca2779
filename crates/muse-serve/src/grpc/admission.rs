//! Reads the messages of `muse.v1` before they are decoded: their memory is reserved first, and
//! large ones are decoded where they delay no other connection.

use std::future::{Future, poll_fn};
use std::pin::pin;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{self, Next};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;
use tonic::Status;
use tonic::service::Routes;

use super::decoded_size::{decoded_size, is_method};
use crate::http::body::{self, BodyError};
use crate::service::RequestScope;
use crate::tracking;

/// Bytes before a message: whether it is compressed, and its length.
const FRAME_HEADER_BYTES: usize = 5;
/// Larger messages are decoded as blocking work.
const LARGE_MESSAGE_BYTES: usize = 16 << 10;

/// The same routes, whose messages of at most `max_message_bytes` are admitted one by one.
pub(super) fn admit_messages(routes: Routes, max_message_bytes: usize) -> Routes {
    let admit = middleware::from_fn(move |request: Request, next: Next| async move {
        if !is_method(request.uri().path()) {
            return next.run(request).await;
        }
        match read(request, max_message_bytes).await {
            Ok((request, bytes)) if bytes > LARGE_MESSAGE_BYTES => {
                run_blocking_first(next.run(request)).await
            }
            Ok((request, _)) => next.run(request).await,
            Err(status) => status.into_http::<Body>(),
        }
    });
    Routes::from(routes.into_axum_router().layer(admit))
}

/// Reads the message of a request and reserves the memory that it takes decoded. Returns its
/// length as well.
async fn read(request: Request, limit: usize) -> Result<(Request, usize), Status> {
    let scope = tracking::scope(request.extensions());
    let (parts, body) = request.into_parts();
    let read = body::read(body, limit + FRAME_HEADER_BYTES, &scope.memory).await;
    let bytes = read.map_err(|error| to_status(error, limit, &scope))?;
    let message = bytes.get(FRAME_HEADER_BYTES..).unwrap_or_default();
    let size = decoded_size(parts.uri.path(), message);
    scope.memory.grow(size).map_err(|error| to_status(BodyError::Memory(error), limit, &scope))?;
    let length = message.len();
    Ok((Request::from_parts(parts, Body::from(bytes)), length))
}

fn to_status(error: BodyError, limit: usize, scope: &RequestScope) -> Status {
    match error {
        BodyError::TooLarge(_) => {
            Status::resource_exhausted(BodyError::TooLarge(limit).to_string())
        }
        BodyError::Timeout(_) => Status::deadline_exceeded(error.to_string()),
        BodyError::Memory(error) => super::convert::status(error.into(), Some(scope)),
        BodyError::Broken(_) => Status::cancelled(error.to_string()),
    }
}

/// Polls `future` for the first time as blocking work: it decodes and converts its message then.
async fn run_blocking_first<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    // A runtime of one thread cannot move its other tasks away.
    let mut first = Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
    poll_fn(|cx| match std::mem::take(&mut first) {
        true => block_in_place(|| future.as_mut().poll(cx)),
        false => future.as_mut().poll(cx),
    })
    .await
}
