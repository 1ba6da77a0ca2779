//! Errors as OpenAI's error objects.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use muse_core::Error;
use serde_json::{Value, json};

use crate::service::Refusal;
use crate::status::{self, RETRY_AFTER};

/// An error with its status.
#[derive(Clone, Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    code: &'static str,
    param: Option<String>,
    message: String,
    retry: bool,
}

const INVALID: &str = "invalid_request_error";

impl ApiError {
    /// A request that cannot be read at all.
    pub(super) fn bad_request(message: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// A value that is wrong, or the whole body when `path` is empty. Most clients show the message
    /// alone, so it names the value as well.
    pub(super) fn wrong(path: &str, wrong: &str) -> Self {
        let (param, message) = match path {
            "" if wrong.starts_with("the body") => (None, wrong.to_owned()),
            "" => (None, format!("the body {wrong}")),
            _ => (Some(path.to_owned()), format!("{path}: {wrong}")),
        };
        Self { param, ..Self::new(StatusCode::BAD_REQUEST, "invalid_value", message) }
    }

    pub(super) fn encoded(coding: &HeaderValue) -> Self {
        let message = format!("the body is encoded as {coding:?}; send it plain");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "encoded_body", message)
    }

    pub(super) fn too_large(limit: usize) -> Self {
        let message = format!("the body has more than {limit} bytes; send less at once");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
    }

    pub(super) fn too_slow(limit: Duration) -> Self {
        let seconds = limit.as_secs();
        let message = format!("the body was not there within {seconds} seconds; send it faster");
        Self::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", message)
    }

    pub(super) fn not_found(what: &str) -> Self {
        let message = format!(
            "{what} is not served; there are POST /v1/chat/completions, GET /v1/models and GET \
             /health"
        );
        Self::new(StatusCode::NOT_FOUND, "unknown_url", message)
    }

    pub(super) fn wrong_method(method: &Method, path: &str) -> Self {
        let right = if path == "/v1/chat/completions" { "POST" } else { "GET" };
        let message = format!("{path} does not answer {method}; use {right}");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
    }

    fn new(status: StatusCode, code: &'static str, message: String) -> Self {
        Self { status, kind: INVALID, code, param: None, message, retry: false }
    }

    /// The object that stands in a body or an event.
    pub(super) fn object(&self) -> Value {
        json!({ "error": {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        } })
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let row = status::row(&refusal);
        let retry = matches!(refusal, Refusal::Draining | Refusal::Core(Error::Exhausted(_)));
        let mut message = refusal.to_string();
        let param = match refusal {
            Refusal::Field { field, message: wrong } => {
                let param = param(&field);
                message = format!("{param}: {wrong}");
                Some(param.to_owned())
            }
            Refusal::TooLong { .. } | Refusal::TooMuchText { .. } => Some("messages".to_owned()),
            Refusal::UnknownModel { .. } => Some("model".to_owned()),
            _ => None,
        };
        Self { status: row.http, kind: row.kind, code: row.code, param, message, retry }
    }
}

/// OpenAI's name of a setting.
fn param(field: &str) -> &str {
    match field {
        "logprobs" => "top_logprobs",
        "bias" => "logit_bias",
        "choices" => "n",
        "answer" => "response_format",
        other => other,
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.object())).into_response();
        if self.retry {
            let seconds = HeaderValue::from(RETRY_AFTER.as_secs());
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}
