//! Reading of request bodies, bounded in size and time.

use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use axum::extract::Request;
use axum::http::header;

use super::error::HttpError;

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(300);

/// The whole body of a request, of at most `limit` bytes.
pub(super) async fn read(request: Request, limit: usize) -> Result<Bytes, HttpError> {
    if let Some(coding) = request.headers().get(header::CONTENT_ENCODING)
        && coding != "identity"
    {
        return Err(HttpError::encoded_body(coding));
    }
    // The announced length is refused before the body arrives.
    if request.body().size_hint().lower() > limit as u64 {
        return Err(HttpError::body_too_large(limit));
    }
    let body = axum::body::to_bytes(request.into_body(), limit);
    let Ok(body) = tokio::time::timeout(BODY_TIMEOUT, body).await else {
        return Err(HttpError::body_timeout(BODY_TIMEOUT));
    };
    body.map_err(|error| {
        let source = std::error::Error::source(&error);
        if source.is_some_and(|s| s.is::<http_body_util::LengthLimitError>()) {
            HttpError::body_too_large(limit)
        } else {
            HttpError::bad_request(format!("the body could not be read: {error}"))
        }
    })
}
