//! OpenAI's dialect: chat completions and models.

mod chat;
mod chunks;
mod error;
mod request;
mod response;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::HttpState;
use super::error::HttpError;
use crate::app::ModelCard;
pub(super) use error::{ApiError, render_errors};

/// The routes of this dialect.
pub(super) fn routes() -> Router<HttpState> {
    Router::new()
        .route("/v1/chat/completions", post(chat::completions))
        .route("/v1/models", get(list_models))
        .route("/v1/models/{*id}", get(model))
}

async fn list_models(State(state): State<HttpState>) -> Json<Value> {
    let models = [model_object(&state.service.app().model)];
    Json(json!({ "object": "list", "data": models }))
}

async fn model(
    State(state): State<HttpState>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    let Path(id) = id.map_err(|error| HttpError::bad_request(error.body_text()))?;
    state.service.check_model(Some(&id))?;
    Ok(Json(model_object(&state.service.app().model)))
}

fn model_object(card: &ModelCard) -> Value {
    json!({
        "id": card.name,
        "object": "model",
        "created": card.loaded_at,
        "owned_by": "muse",
        "context_length": card.max_positions,
    })
}
