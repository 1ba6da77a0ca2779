//! HTTP: connections, bodies and health, and a folder for each dialect of the chat interface. A
//! dialect translates to and from the requests of the service; nothing below knows of dialects.

pub(crate) mod body;
mod error;
mod exchange;
mod listener;
mod openai;
mod socket;

use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router, middleware};
use serde_json::json;

use crate::service::{ByteBudget, Service};
use crate::tracking;
use error::HttpError;
pub(crate) use listener::serve;
use openai::ApiError;

/// What handlers share.
#[derive(Clone)]
struct HttpState {
    service: Service,
    max_body_bytes: usize,
}

/// All routes.
pub(crate) fn router(service: Service, budget: ByteBudget, max_body_bytes: usize) -> Router {
    Router::new()
        .merge(openai::routes())
        .route("/health", get(health))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn(openai::render_errors))
        .layer(middleware::from_fn_with_state(budget, tracking::track))
        .with_state(HttpState { service, max_body_bytes })
}

async fn health(State(state): State<HttpState>) -> Response {
    let (status, word) = if state.service.drain_guard().is_draining() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else {
        (StatusCode::OK, "ok")
    };
    (status, Json(json!({ "status": word }))).into_response()
}

async fn not_found(method: Method, uri: Uri) -> ApiError {
    HttpError::not_found(&format!("{method} {}", uri.path())).into()
}

async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    HttpError::method_not_allowed(&method, uri.path()).into()
}
