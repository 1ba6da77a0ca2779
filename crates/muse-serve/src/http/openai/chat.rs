//! `POST /v1/chat/completions`: the whole answer, or its chunks in the order that clients expect.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use muse_core::contract::Tokenizer;
use tokio_stream::StreamExt;

use super::chunks::ChunkStream;
use super::error::ApiError;
use super::request;
use super::response::{CollectedChoice, ObjectHead, completion};
use crate::http::{HttpState, body};
use crate::service::{ChatEvent, OutputStream, RequestScope, ServiceError, run_blocking};
use crate::tracking;

/// Larger bodies are parsed, and larger replies written, on a blocking thread.
const LARGE_BODY_BYTES: usize = 16 << 10;

pub(super) async fn completions(
    State(state): State<HttpState>,
    request: Request,
) -> Result<Response, ApiError> {
    let scope = tracking::scope(request.extensions());
    let body = body::read_request(request, state.max_body_bytes, &scope.memory).await?;
    let (large, parse_scope) = (body.len() > LARGE_BODY_BYTES, Arc::clone(&scope));
    let parse = move || request::parse(&body, &parse_scope);
    let mut request = if large { run_blocking(parse).await? } else { parse()? };
    let app = state.service.app();
    let Some(tokenizer) = app.tokenizer.clone() else {
        return Err(ServiceError::NoTokenizer.into());
    };
    let head = ObjectHead::new(&app.model.name, request.legacy_functions);
    let choices = request.job.choices.unwrap_or(1);
    let logprobs = request.job.settings.logprobs.is_some().then_some(tokenizer);
    request.job.scope = Some(Arc::clone(&scope));
    let answer_path = request.answer_path.take();
    if !request.stream {
        // Nobody would see deltas, after which a call that cannot be read is no content any more.
        request.job.growing_tool_calls = Some(false);
    }
    let events = state.service.chat(request.job).await;
    let events = events.map_err(|error| ApiError::about_answer(error, answer_path))?;
    if !request.stream {
        return collect(head, events, choices, logprobs, &scope).await;
    }
    let chunks = ChunkStream::new(head, events, choices, logprobs, request.include_usage, scope);
    Ok(Sse::new(chunks).keep_alive(KeepAlive::default()).into_response())
}

/// The whole answer as one object.
async fn collect(
    head: ObjectHead,
    mut events: OutputStream<ChatEvent>,
    choices: u32,
    logprobs: Option<Arc<dyn Tokenizer>>,
    scope: &RequestScope,
) -> Result<Response, ApiError> {
    let mut collected: Vec<_> = (0..choices).map(|_| CollectedChoice::default()).collect();
    let mut size = 0;
    while let Some(event) = events.next().await {
        let (choice, event) = event?;
        let more = CollectedChoice::written_bytes(&event);
        scope.memory.grow(more).map_err(ServiceError::from)?;
        size += more;
        collected[choice as usize].push(event);
    }
    let write = move || completion(&head, &collected, logprobs.as_deref());
    let object = if size > LARGE_BODY_BYTES { run_blocking(write).await } else { write() };
    let json = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, json)], Body::from(object)).into_response())
}
