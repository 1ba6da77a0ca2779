//! The OpenAI-compatible HTTP interface: chat completions, models and health.

mod body;
mod chat;
mod error;
mod listener;
mod request;

use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::service::Service;
use error::ApiError;
pub(crate) use listener::serve;

/// How long a body may be on its way.
const BODY_TIMEOUT: Duration = Duration::from_secs(300);

/// What handlers share.
#[derive(Clone)]
struct Http {
    service: Service,
    max_body_bytes: usize,
}

/// All routes.
pub(crate) fn router(service: Service, max_body_bytes: usize) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat::completions))
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(model))
        .route("/health", get(health))
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .with_state(Http { service, max_body_bytes })
}

impl Http {
    /// The whole body, if it is not too large.
    async fn body(&self, request: Request) -> Result<Bytes, ApiError> {
        let limit = self.max_body_bytes;
        if let Some(coding) = request.headers().get(header::CONTENT_ENCODING)
            && coding != "identity"
        {
            return Err(ApiError::encoded(coding));
        }
        // What is announced need not be waited for.
        if request.body().size_hint().lower() > limit as u64 {
            return Err(ApiError::too_large(limit));
        }
        let body = axum::body::to_bytes(request.into_body(), limit);
        let Ok(body) = tokio::time::timeout(BODY_TIMEOUT, body).await else {
            return Err(ApiError::too_slow(BODY_TIMEOUT));
        };
        body.map_err(|error| {
            let source = std::error::Error::source(&error);
            if source.is_some_and(|s| s.is::<http_body_util::LengthLimitError>()) {
                ApiError::too_large(limit)
            } else {
                ApiError::bad_request(format!("the body could not be read: {error}"))
            }
        })
    }

    fn card(&self) -> Value {
        let card = &self.service.app().model;
        json!({
            "id": card.name,
            "object": "model",
            "created": card.loaded_at,
            "owned_by": "muse",
            "context_length": card.max_positions,
        })
    }
}

async fn models(State(http): State<Http>) -> Json<Value> {
    Json(json!({ "object": "list", "data": [http.card()] }))
}

async fn model(
    State(http): State<Http>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    let Path(id) = id.map_err(|error| ApiError::bad_request(error.body_text()))?;
    http.service.check_model(Some(&id))?;
    Ok(Json(http.card()))
}

async fn health(State(http): State<Http>) -> Response {
    let (status, word) = if http.service.gate().is_closed() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else {
        (StatusCode::OK, "ok")
    };
    (status, Json(json!({ "status": word }))).into_response()
}

async fn not_found(method: Method, uri: Uri) -> ApiError {
    ApiError::not_found(&format!("{method} {}", uri.path()))
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    ApiError::wrong_method(&method, uri.path())
}
