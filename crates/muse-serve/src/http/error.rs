//! Errors of HTTP requests, apart from any dialect: each dialect has its own body for them.

use axum::http::{HeaderValue, Method, StatusCode};
use muse_core::Error;

use super::body::BodyError;
use crate::service::ServiceError;
use crate::status;

/// An error with its status.
#[derive(Clone, Debug)]
pub(super) struct HttpError {
    pub(super) status: StatusCode,
    /// A short name for programs.
    pub(super) code: &'static str,
    /// What was found, what is expected and what to do.
    pub(super) message: String,
    /// Whether the same request may succeed after [`status::RETRY_AFTER`].
    pub(super) retry: bool,
}

impl HttpError {
    pub(super) fn new(status: StatusCode, code: &'static str, message: String) -> Self {
        Self { status, code, message, retry: false }
    }

    /// A request that cannot be read at all.
    pub(super) fn bad_request(message: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    pub(super) fn encoded_body(coding: &HeaderValue) -> Self {
        let message = format!("the body is encoded as {coding:?}; send it plain");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "encoded_body", message)
    }

    pub(super) fn not_found(what: &str) -> Self {
        let message = format!(
            "{what} is not served; there are POST /v1/chat/completions, GET /v1/models and GET \
             /health"
        );
        Self::new(StatusCode::NOT_FOUND, "unknown_url", message)
    }

    pub(super) fn method_not_allowed(method: &Method, path: &str) -> Self {
        let right = if path == "/v1/chat/completions" { "POST" } else { "GET" };
        let message = format!("{path} does not answer {method}; use {right}");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
    }
}

impl From<BodyError> for HttpError {
    fn from(error: BodyError) -> Self {
        let message = error.to_string();
        match error {
            BodyError::TooLarge(_) => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
            }
            BodyError::Timeout(_) => {
                Self::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", message)
            }
            BodyError::Memory(error) => Self::from(&ServiceError::Core(error)),
            BodyError::Broken(_) => Self::bad_request(message),
        }
    }
}

impl From<&ServiceError> for HttpError {
    fn from(error: &ServiceError) -> Self {
        let codes = status::codes(error);
        let retry =
            matches!(error, ServiceError::Draining | ServiceError::Core(Error::Exhausted(_)));
        Self { status: codes.http, code: codes.reason, message: error.to_string(), retry }
    }
}
