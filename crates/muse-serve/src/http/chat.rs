//! `POST /v1/chat/completions`: the whole answer, or chunks in the order clients expect.

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

use super::Http;
use super::body::{Collected, Head, call, delta, log_probabilities};
use super::error::ApiError;
use super::request;
use crate::service::{Answer, ChatEvent, Refusal, Spent, aside};

/// Bodies that are not read on a thread that serves others.
const LONG_BYTES: usize = 64 << 10;

pub(super) async fn completions(
    State(http): State<Http>,
    request: Request,
) -> Result<Response, ApiError> {
    let body = http.body(request).await?;
    let wanted = if body.len() < LONG_BYTES {
        request::read(&body)?
    } else {
        aside(move || request::read(&body)).await?
    };
    let app = http.service.app();
    let Some(tokenizer) = app.tokenizer.clone() else { return Err(Refusal::NoText.into()) };
    let head = Head::new(&app.model.name);
    let choices = wanted.ask.choices.unwrap_or(1) as usize;
    let logprobs = wanted.ask.settings.logprobs.is_some();
    let answer = http.service.chat(wanted.ask).await?;
    if !wanted.stream {
        return whole(&head, answer, choices, logprobs, tokenizer.as_ref()).await;
    }
    let chunks = Chunks {
        head,
        answer,
        logprobs: logprobs.then_some(tokenizer),
        with_usage: wanted.include_usage,
        calls: vec![Calls::default(); choices],
        spent: vec![Spent::default(); choices],
        ready: VecDeque::new(),
        over: false,
    };
    Ok(Sse::new(chunks.opened()).keep_alive(KeepAlive::default()).into_response())
}

async fn whole(
    head: &Head,
    mut answer: Answer<ChatEvent>,
    choices: usize,
    logprobs: bool,
    tokenizer: &dyn Tokenizer,
) -> Result<Response, ApiError> {
    let mut collected: Vec<Collected> = (0..choices).map(|_| Collected::default()).collect();
    while let Some(event) = answer.next().await {
        let (choice, event) = event?;
        collected[choice as usize].take(event);
    }
    let spent: Vec<Spent> = collected.iter().map(|choice| choice.spent.clone()).collect();
    let choice = |(i, choice): (usize, &Collected)| choice.choice(i, logprobs, tokenizer);
    let choices = collected.iter().enumerate().map(choice).collect();
    Ok(Json(head.completion(choices, &spent)).into_response())
}

/// The events of a stream: for each choice its role, deltas and finish; then the usage if asked
/// for, then the word that it is done. A refusal ends the stream with an error object instead.
struct Chunks {
    head: Head,
    answer: Answer<ChatEvent>,
    /// Spells tokens when log-probabilities are asked for.
    logprobs: Option<Arc<dyn Tokenizer>>,
    with_usage: bool,
    /// For each choice.
    calls: Vec<Calls>,
    spent: Vec<Spent>,
    ready: VecDeque<Event>,
    over: bool,
}

/// Calls of a choice.
#[derive(Clone, Default)]
struct Calls {
    /// How many were told, or begun.
    told: u32,
    /// The one that is told in parts.
    growing: Option<String>,
}

impl Chunks {
    /// With the roles, which come before anything is known.
    fn opened(mut self) -> Self {
        for choice in 0..self.calls.len() as u32 {
            self.tell(choice, json!({ "role": "assistant", "content": "" }), Value::Null);
        }
        self
    }

    fn tell(&mut self, choice: u32, change: Value, logprobs: Value) {
        let chunk = self.head.chunk(delta(choice, change, logprobs, None), self.with_usage);
        self.push(&chunk);
    }

    /// Tells of the call that was begun last.
    fn tell_call(&mut self, choice: u32, mut object: Value) {
        object["index"] = json!(self.calls[choice as usize].told - 1);
        self.tell(choice, json!({ "tool_calls": [object] }), Value::Null);
    }

    fn push(&mut self, object: &Value) {
        self.ready.push_back(Event::default().data(object.to_string()));
    }

    fn push_event(&mut self, choice: u32, event: ChatEvent) {
        match event {
            ChatEvent::Progress { .. } => {}
            ChatEvent::Think(text) => {
                self.tell(choice, json!({ "reasoning_content": text }), Value::Null);
            }
            ChatEvent::Say { text, tokens } => {
                let spell =
                    |tokenizer: &Arc<dyn Tokenizer>| log_probabilities(&tokens, tokenizer.as_ref());
                let logprobs = self.logprobs.as_ref().map_or(Value::Null, spell);
                self.tell(choice, json!({ "content": text }), logprobs);
            }
            ChatEvent::CallPart(part) => {
                let calls = &mut self.calls[choice as usize];
                if calls.growing.as_ref() == Some(&part.id) {
                    let more = json!({ "function": { "arguments": part.arguments } });
                    self.tell_call(choice, more);
                } else {
                    calls.growing = Some(part.id.clone());
                    calls.told += 1;
                    self.tell_call(choice, call(&part));
                }
            }
            ChatEvent::Call(made) => {
                let calls = &mut self.calls[choice as usize];
                if calls.growing.take().is_none_or(|id| id != made.id) {
                    calls.told += 1;
                    self.tell_call(choice, call(&made));
                }
            }
            ChatEvent::Spent(spent) => self.spent[choice as usize] = spent,
            ChatEvent::End(end) => {
                let last = delta(choice, json!({}), Value::Null, Some(&end));
                let chunk = self.head.chunk(last, self.with_usage);
                self.push(&chunk);
            }
        }
    }

    fn end(&mut self) {
        if self.with_usage {
            let chunk = self.head.usage_chunk(&self.spent);
            self.push(&chunk);
        }
        self.ready.push_back(Event::default().data("[DONE]"));
        self.over = true;
    }
}

impl Stream for Chunks {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            if self.over {
                return Poll::Ready(None);
            }
            match ready!(Pin::new(&mut self.answer).poll_next(cx)) {
                Some(Ok((choice, event))) => self.push_event(choice, event),
                Some(Err(refusal)) => {
                    let object = ApiError::from(refusal).object();
                    self.push(&object);
                    self.over = true;
                }
                None => self.end(),
            }
        }
    }
}
