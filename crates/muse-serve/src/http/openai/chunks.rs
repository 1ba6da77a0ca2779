//! A streamed answer: the events of a chat as chunks of server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::response::sse::Event;
use muse_core::contract::Tokenizer;
use serde_json::{Value, json};
use tokio_stream::Stream;

use super::error::ApiError;
use super::response::{ChunkChoice, LogProbs, ObjectHead, tool_call};
use crate::service::{ChatEvent, ChatUsage, OutputStream, RequestScope};

/// The events of a stream: for each choice its role, deltas and finish; then the usage if it was
/// requested, then `[DONE]`. An error ends the stream with an error object instead.
pub(super) struct ChunkStream {
    head: ObjectHead,
    events: OutputStream<ChatEvent>,
    /// Spells tokens when log-probabilities were requested.
    logprobs: Option<Arc<dyn Tokenizer>>,
    include_usage: bool,
    scope: Arc<RequestScope>,
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
    /// A stream that begins with the role of each choice.
    pub(super) fn new(
        head: ObjectHead,
        events: OutputStream<ChatEvent>,
        choices: u32,
        logprobs: Option<Arc<dyn Tokenizer>>,
        include_usage: bool,
        scope: Arc<RequestScope>,
    ) -> Self {
        let (count, ready) = (choices as usize, VecDeque::new());
        let (calls, usage) = (vec![CallState::default(); count], vec![ChatUsage::default(); count]);
        let mut stream = Self {
            head,
            events,
            logprobs,
            include_usage,
            scope,
            calls,
            usage,
            ready,
            ended: false,
        };
        for choice in 0..choices {
            stream.push_delta(choice, json!({ "role": "assistant", "content": "" }));
        }
        stream
    }

    fn push_delta(&mut self, choice: u32, delta: Value) {
        let chunk = self.head.chunk(ChunkChoice::new(choice, delta), self.include_usage);
        self.push(chunk);
    }

    /// A delta of the call that was begun last.
    fn push_call(&mut self, choice: u32, mut object: Value) {
        if self.head.legacy_functions() {
            self.push_delta(choice, json!({ "function_call": object["function"] }));
            return;
        }
        object["index"] = json!(self.calls[choice as usize].begun - 1);
        self.push_delta(choice, json!({ "tool_calls": [object] }));
    }

    fn push(&mut self, object: String) {
        self.ready.push_back(Event::default().data(object));
    }

    fn push_event(&mut self, choice: u32, event: ChatEvent) {
        match event {
            ChatEvent::Progress { .. } => {}
            ChatEvent::Reasoning(text) => {
                self.push_delta(choice, json!({ "reasoning_content": text }));
            }
            ChatEvent::Content { text, tokens } => {
                let mut delta = ChunkChoice::new(choice, json!({ "content": text }));
                let spell = self.logprobs.as_deref();
                delta.logprobs = spell.map(|tokenizer| LogProbs::new(&tokens, tokenizer));
                let chunk = self.head.chunk(delta, self.include_usage);
                self.push(chunk);
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
                let last = ChunkChoice::finish(choice, &finish, &self.head);
                let chunk = self.head.chunk(last, self.include_usage);
                self.push(chunk);
            }
        }
    }

    fn end(&mut self) {
        if self.include_usage {
            let chunk = self.head.usage_chunk(&self.usage);
            self.push(chunk);
        }
        self.push("[DONE]".to_owned());
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
                    let error = ApiError::from(error);
                    self.scope.set_error(error.code());
                    let object = error.object(self.scope.id()).to_string();
                    self.push(object);
                    self.ended = true;
                }
                None => self.end(),
            }
        }
    }
}
