//! `POST /v1/chat/completions`: the whole answer, or its chunks in the order that clients expect.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::Json;
use axum::extract::{Request, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use muse_core::contract::Tokenizer;
use serde_json::{Value, json};
use tokio_stream::{Stream, StreamExt};

use super::error::ApiError;
use super::request;
use super::response::{CollectedChoice, ObjectHead, delta, log_probabilities, tool_call};
use crate::http::{HttpState, body};
use crate::service::{ChatEvent, ChatUsage, OutputStream, ServiceError, run_blocking};

/// Larger bodies are parsed on a blocking thread.
const LARGE_BODY_BYTES: usize = 64 << 10;

pub(super) async fn completions(
    State(state): State<HttpState>,
    request: Request,
) -> Result<Response, ApiError> {
    let body = body::read(request, state.max_body_bytes).await?;
    let request = if body.len() < LARGE_BODY_BYTES {
        request::parse(&body)?
    } else {
        run_blocking(move || request::parse(&body)).await?
    };
    let app = state.service.app();
    let Some(tokenizer) = app.tokenizer.clone() else {
        return Err(ServiceError::NoTokenizer.into());
    };
    let head = ObjectHead::new(&app.model.name);
    let choices = request.job.choices.unwrap_or(1) as usize;
    let logprobs = request.job.settings.logprobs.is_some();
    let events = state.service.chat(request.job).await?;
    if !request.stream {
        return collect(&head, events, choices, logprobs, tokenizer.as_ref()).await;
    }
    let chunks = ChunkStream {
        head,
        events,
        logprobs: logprobs.then_some(tokenizer),
        include_usage: request.include_usage,
        calls: vec![CallState::default(); choices],
        usage: vec![ChatUsage::default(); choices],
        ready: VecDeque::new(),
        ended: false,
    };
    Ok(Sse::new(chunks.with_roles()).keep_alive(KeepAlive::default()).into_response())
}

/// The whole answer as one object.
async fn collect(
    head: &ObjectHead,
    mut events: OutputStream<ChatEvent>,
    choices: usize,
    logprobs: bool,
    tokenizer: &dyn Tokenizer,
) -> Result<Response, ApiError> {
    let mut collected: Vec<_> = (0..choices).map(|_| CollectedChoice::default()).collect();
    while let Some(event) = events.next().await {
        let (choice, event) = event?;
        collected[choice as usize].push(event);
    }
    let usage: Vec<ChatUsage> = collected.iter().map(|choice| choice.usage.clone()).collect();
    let object = |(i, choice): (usize, &CollectedChoice)| choice.object(i, logprobs, tokenizer);
    let choices = collected.iter().enumerate().map(object).collect();
    Ok(Json(head.completion(choices, &usage)).into_response())
}

/// The events of a stream: for each choice its role, deltas and finish; then the usage if it was
/// requested, then `[DONE]`. An error ends the stream with an error object instead.
struct ChunkStream {
    head: ObjectHead,
    events: OutputStream<ChatEvent>,
    /// Spells tokens when log-probabilities were requested.
    logprobs: Option<Arc<dyn Tokenizer>>,
    include_usage: bool,
    /// For each choice.
    calls: Vec<CallState>,
    usage: Vec<ChatUsage>,
    ready: VecDeque<Event>,
    ended: bool,
}

/// The tool calls of a choice.
#[derive(Clone, Default)]
struct CallState {
    /// How many were begun.
    begun: u32,
    /// The id of the one that is sent in deltas.
    growing: Option<String>,
}

impl ChunkStream {
    /// With the first chunk of each choice, which has its role.
    fn with_roles(mut self) -> Self {
        for choice in 0..self.calls.len() as u32 {
            self.push_delta(choice, json!({ "role": "assistant", "content": "" }), Value::Null);
        }
        self
    }

    fn push_delta(&mut self, choice: u32, change: Value, logprobs: Value) {
        let chunk = self.head.chunk(delta(choice, change, logprobs, None), self.include_usage);
        self.push(&chunk);
    }

    /// A delta of the call that was begun last.
    fn push_call(&mut self, choice: u32, mut object: Value) {
        object["index"] = json!(self.calls[choice as usize].begun - 1);
        self.push_delta(choice, json!({ "tool_calls": [object] }), Value::Null);
    }

    fn push(&mut self, object: &Value) {
        self.ready.push_back(Event::default().data(object.to_string()));
    }

    fn push_event(&mut self, choice: u32, event: ChatEvent) {
        match event {
            ChatEvent::Progress { .. } => {}
            ChatEvent::Reasoning(text) => {
                self.push_delta(choice, json!({ "reasoning_content": text }), Value::Null);
            }
            ChatEvent::Content { text, tokens } => {
                let spell =
                    |tokenizer: &Arc<dyn Tokenizer>| log_probabilities(&tokens, tokenizer.as_ref());
                let logprobs = self.logprobs.as_ref().map_or(Value::Null, spell);
                self.push_delta(choice, json!({ "content": text }), logprobs);
            }
            ChatEvent::ToolCallDelta(part) => {
                let calls = &mut self.calls[choice as usize];
                if calls.growing.as_ref() == Some(&part.id) {
                    let more = json!({ "function": { "arguments": part.arguments } });
                    self.push_call(choice, more);
                } else {
                    calls.growing = Some(part.id.clone());
                    calls.begun += 1;
                    self.push_call(choice, tool_call(&part));
                }
            }
            ChatEvent::ToolCall(call) => {
                let calls = &mut self.calls[choice as usize];
                if calls.growing.take().is_none_or(|id| id != call.id) {
                    calls.begun += 1;
                    self.push_call(choice, tool_call(&call));
                }
            }
            ChatEvent::Usage(usage) => self.usage[choice as usize] = usage,
            ChatEvent::Finish(finish) => {
                let last = delta(choice, json!({}), Value::Null, Some(&finish));
                let chunk = self.head.chunk(last, self.include_usage);
                self.push(&chunk);
            }
        }
    }

    fn end(&mut self) {
        if self.include_usage {
            let chunk = self.head.usage_chunk(&self.usage);
            self.push(&chunk);
        }
        self.ready.push_back(Event::default().data("[DONE]"));
        self.ended = true;
    }
}

impl Stream for ChunkStream {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match ready!(Pin::new(&mut self.events).poll_next(cx)) {
                Some(Ok((choice, event))) => self.push_event(choice, event),
                Some(Err(error)) => {
                    let object = ApiError::from(error).object();
                    self.push(&object);
                    self.ended = true;
                }
                None => self.end(),
            }
        }
    }
}
