//! Reading of request bodies, bounded in size, in time, and by the memory of all requests.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::header;
use http_body_util::BodyExt;
use muse_core::Error;

use super::error::HttpError;
use crate::service::Reservation;

/// How long a whole body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(300);
/// How long a body may pause.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a body was not read.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// It has more bytes than this limit.
    TooLarge(usize),
    /// It did not arrive within this time.
    Timeout(Duration),
    /// There is no memory for it.
    Memory(Error),
    /// The connection failed, or the body is malformed.
    Broken(axum::Error),
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge(limit) => {
                write!(f, "the request has more than {limit} bytes; send less at once")
            }
            Self::Timeout(limit) => {
                let seconds = limit.as_secs();
                write!(f, "the request did not arrive within {seconds} seconds; send it faster")
            }
            Self::Memory(error) => error.fmt(f),
            Self::Broken(error) => write!(f, "the request could not be read: {error}"),
        }
    }
}

/// The whole body of an HTTP request; see [`read`].
pub(super) async fn read_request(
    request: Request,
    limit: usize,
    memory: &Reservation,
) -> Result<Bytes, HttpError> {
    if let Some(coding) = request.headers().get(header::CONTENT_ENCODING)
        && coding != "identity"
    {
        return Err(HttpError::encoded_body(coding));
    }
    Ok(read(request.into_body(), limit, memory).await?)
}

/// The whole body, of at most `limit` bytes, which are reserved in `memory` as they arrive.
pub(crate) async fn read(
    mut body: Body,
    limit: usize,
    memory: &Reservation,
) -> Result<Bytes, BodyError> {
    // The announced length is refused before the body arrives.
    if body.size_hint().lower() > limit as u64 {
        return Err(BodyError::TooLarge(limit));
    }
    let (mut parts, mut length) = (VecDeque::new(), 0);
    let read = async {
        loop {
            let frame = tokio::time::timeout(PAUSE_TIMEOUT, body.frame()).await;
            let frame = match frame.map_err(|_| BodyError::Timeout(PAUSE_TIMEOUT))? {
                None => return Ok(()),
                Some(frame) => frame.map_err(BodyError::Broken)?,
            };
            let Ok(part) = frame.into_data() else { continue };
            length += part.len();
            if length > limit {
                return Err(BodyError::TooLarge(limit));
            }
            memory.grow(part.len()).map_err(BodyError::Memory)?;
            parts.push_back(part);
        }
    };
    let read = tokio::time::timeout(BODY_TIMEOUT, read).await;
    read.map_err(|_| BodyError::Timeout(BODY_TIMEOUT))??;
    if let (Some(part), 1) = (parts.front(), parts.len()) {
        return Ok(part.clone());
    }
    // Each part is freed as soon as it is copied.
    let mut whole = Vec::with_capacity(length);
    while let Some(part) = parts.pop_front() {
        whole.extend_from_slice(&part);
    }
    Ok(whole.into())
}
