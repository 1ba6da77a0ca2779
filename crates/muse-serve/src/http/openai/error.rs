//! Errors as OpenAI's error objects.

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::http::error::HttpError;
use crate::service::ServiceError;
use crate::status::RETRY_AFTER;
use crate::tracking;

/// An error of this dialect. Its message names the field: most clients show the message alone.
#[derive(Clone, Debug)]
pub(in crate::http) struct ApiError {
    error: HttpError,
    /// The field of the body that is wrong.
    param: Option<String>,
}

impl ApiError {
    /// A wrong value, or a wrong body when `path` is empty.
    pub(super) fn invalid_value(path: &str, message: &str) -> Self {
        let (param, message) = match path {
            "" if message.starts_with("the body") => (None, message.to_owned()),
            "" => (None, format!("the body {message}")),
            _ => (Some(path.to_owned()), format!("{path}: {message}")),
        };
        let error = HttpError::new(StatusCode::BAD_REQUEST, "invalid_value", message);
        Self { error, param }
    }

    /// An error of the service, in which the constraint of the answer has the name of its field.
    pub(super) fn about_answer(error: ServiceError, path: Option<String>) -> Self {
        match (error, path) {
            (ServiceError::InvalidField { field, message }, Some(path)) if field == "answer" => {
                Self::invalid_value(&path, &message)
            }
            (error, _) => error.into(),
        }
    }

    /// The short name of the error.
    pub(in crate::http) fn code(&self) -> &'static str {
        self.error.code
    }

    /// The object that stands in a body or an event.
    pub(in crate::http) fn object(&self, request_id: &str) -> Value {
        json!({ "error": {
            "message": self.error.message,
            "type": error_type(self.error.status),
            "param": self.param,
            "code": self.error.code,
            "request_id": request_id,
        } })
    }
}

impl From<HttpError> for ApiError {
    fn from(error: HttpError) -> Self {
        Self { error, param: None }
    }
}

impl From<ServiceError> for ApiError {
    fn from(error: ServiceError) -> Self {
        let mut http = HttpError::from(&error);
        let param = match error {
            ServiceError::InvalidField { field, message } => {
                let param = param(&field);
                http.message = format!("{param}: {message}");
                Some(param.to_owned())
            }
            ServiceError::PromptTooLong { .. } | ServiceError::TextTooLong { .. } => {
                Some("messages".to_owned())
            }
            ServiceError::UnknownModel { .. } => Some("model".to_owned()),
            _ => None,
        };
        Self { error: http, param }
    }
}

/// OpenAI's name of a field of the service.
fn param(field: &str) -> &str {
    match field {
        "logprobs" => "top_logprobs",
        "bias" => "logit_bias",
        "choices" => "n",
        "answer" => "response_format",
        other => other,
    }
}

/// The `type` of an error object.
fn error_type(status: StatusCode) -> &'static str {
    match status {
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        // The request asks for what this build does not have.
        StatusCode::NOT_IMPLEMENTED => "invalid_request_error",
        status if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    }
}

/// Gives errors their bodies, which name the request.
pub(in crate::http) async fn render_errors(request: Request, next: Next) -> Response {
    let scope = tracking::scope(request.extensions());
    let mut response = next.run(request).await;
    let Some(error) = response.extensions_mut().remove::<ApiError>() else { return response };
    scope.set_error(error.code());
    let body = Json(error.object(scope.id()));
    let headers = std::mem::take(response.headers_mut());
    (response.status(), headers, body).into_response()
}

/// Without a body: [`render_errors`] writes it.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.error.status.into_response();
        if self.error.retry {
            let seconds = HeaderValue::from(RETRY_AFTER.as_secs());
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response.extensions_mut().insert(self);
        response
    }
}
