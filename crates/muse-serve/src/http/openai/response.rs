//! Answers as OpenAI's chat completion objects: whole, and in chunks.

use std::time::{SystemTime, UNIX_EPOCH};

use muse_core::contract::{Token, Tokenizer, ToolCall};
use serde::Serialize;
use serde::ser::{SerializeSeq, SerializeStruct, Serializer};
use serde_json::{Value, json};

use crate::service::{AnswerToken, ChatEvent, ChatFinish, ChatUsage, RequestUsage, random_u64};

/// Bytes of a token or an alternative in the object of log-probabilities, about.
const LOGPROB_BYTES: usize = 96;

/// What all objects of one answer share.
pub(super) struct ObjectHead {
    id: String,
    created: u64,
    model: String,
    /// Whether calls have the shape of `functions`: one, without id.
    legacy_functions: bool,
}

#[derive(Serialize)]
struct Object<'a, C> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: Vec<C>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timings: Option<Value>,
}

/// A choice of a chunk.
#[derive(Serialize)]
pub(super) struct ChunkChoice<'a> {
    index: u32,
    delta: Value,
    pub(super) logprobs: Option<LogProbs<'a>>,
    finish_reason: Option<&'static str>,
    /// The call that was cut, with the finish reason `length`.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete_tool_call: Option<Value>,
}

/// A choice of a whole answer.
#[derive(Serialize)]
struct ResponseChoice<'a> {
    index: usize,
    message: Value,
    logprobs: Option<LogProbs<'a>>,
    finish_reason: Option<&'static str>,
}

impl ObjectHead {
    pub(super) fn new(model: &str, legacy_functions: bool) -> Self {
        let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let id = format!("chatcmpl-{:016x}", random_u64());
        Self { id, created, model: model.to_owned(), legacy_functions }
    }

    /// A chunk. `usage_follows`: `usage` is null here, since a later chunk has it.
    pub(super) fn chunk(&self, choice: ChunkChoice<'_>, usage_follows: bool) -> String {
        let mut object = self.object("chat.completion.chunk", vec![choice]);
        object.usage = usage_follows.then_some(Value::Null);
        to_json(&object)
    }

    pub(super) fn legacy_functions(&self) -> bool {
        self.legacy_functions
    }

    fn finish_reason(&self, finish: &ChatFinish) -> &'static str {
        match finish {
            ChatFinish::StopToken(_) | ChatFinish::StopText(_) => "stop",
            ChatFinish::Length { .. } => "length",
            ChatFinish::ToolCalls if self.legacy_functions => "function_call",
            ChatFinish::ToolCalls => "tool_calls",
        }
    }

    /// The chunk after those of all choices.
    pub(super) fn usage_chunk(&self, choices: &[ChatUsage]) -> String {
        let mut object = self.object("chat.completion.chunk", Vec::<()>::new());
        let total = RequestUsage::new(choices);
        (object.usage, object.timings) = (Some(usage(&total)), Some(timings(&total)));
        to_json(&object)
    }

    fn object<C>(&self, kind: &'static str, choices: Vec<C>) -> Object<'_, C> {
        let Self { id, created, model, .. } = self;
        Object { id, object: kind, created: *created, model, choices, usage: None, timings: None }
    }
}

/// A whole answer. `logprobs` spells tokens when log-probabilities were requested.
pub(super) fn completion(
    head: &ObjectHead,
    choices: &[CollectedChoice],
    logprobs: Option<&dyn Tokenizer>,
) -> String {
    let total: Vec<ChatUsage> = choices.iter().map(|choice| choice.usage.clone()).collect();
    let total = RequestUsage::new(&total);
    let choices = choices.iter().enumerate().map(|(i, choice)| choice.object(i, logprobs, head));
    let mut object = head.object("chat.completion", choices.collect());
    (object.usage, object.timings) = (Some(usage(&total)), Some(timings(&total)));
    to_json(&object)
}

fn to_json(object: &impl Serialize) -> String {
    serde_json::to_string(object).expect("strings, numbers and lists are JSON")
}

impl ChunkChoice<'_> {
    pub(super) fn new(index: u32, delta: Value) -> Self {
        Self { index, delta, logprobs: None, finish_reason: None, incomplete_tool_call: None }
    }

    pub(super) fn finish(index: u32, finish: &ChatFinish, head: &ObjectHead) -> Self {
        let incomplete_tool_call = match finish {
            ChatFinish::Length { incomplete_call: Some(call) } => {
                Some(json!({ "id": call.id, "name": call.name }))
            }
            _ => None,
        };
        let finish_reason = Some(head.finish_reason(finish));
        Self { finish_reason, incomplete_tool_call, ..Self::new(index, json!({})) }
    }
}

pub(super) fn tool_call(call: &ToolCall) -> Value {
    json!({
        "id": call.id,
        "type": "function",
        "function": { "name": call.name, "arguments": call.arguments },
    })
}

/// Collects the events of a choice into a whole message.
#[derive(Default)]
pub(super) struct CollectedChoice {
    content: String,
    reasoning: String,
    calls: Vec<Value>,
    tokens: Vec<AnswerToken>,
    usage: ChatUsage,
    finish: Option<ChatFinish>,
}

impl CollectedChoice {
    pub(super) fn push(&mut self, event: ChatEvent) {
        match event {
            ChatEvent::Progress { .. } | ChatEvent::ToolCallDelta(_) => {}
            ChatEvent::Reasoning(text) => self.reasoning.push_str(&text),
            ChatEvent::Content { text, tokens } => {
                self.content.push_str(&text);
                self.tokens.extend(tokens);
            }
            ChatEvent::ToolCall(call) => self.calls.push(tool_call(&call)),
            ChatEvent::Usage(usage) => self.usage = usage,
            ChatEvent::Finish(finish) => self.finish = Some(finish),
        }
    }

    /// The choice of a completion.
    fn object<'a>(
        &'a self,
        index: usize,
        logprobs: Option<&'a dyn Tokenizer>,
        head: &ObjectHead,
    ) -> ResponseChoice<'a> {
        let only_calls = self.content.is_empty() && !self.calls.is_empty();
        let content = if only_calls { Value::Null } else { json!(self.content) };
        let mut message = json!({ "role": "assistant", "content": content, "refusal": null });
        if !self.reasoning.is_empty() {
            message["reasoning_content"] = json!(self.reasoning);
        }
        if !self.calls.is_empty() {
            match head.legacy_functions {
                true => message["function_call"] = self.calls[0]["function"].clone(),
                false => message["tool_calls"] = json!(self.calls),
            }
        }
        ResponseChoice {
            index,
            message,
            logprobs: logprobs.map(|tokenizer| LogProbs::new(&self.tokens, tokenizer)),
            finish_reason: self.finish.as_ref().map(|finish| head.finish_reason(finish)),
        }
    }

    /// About the memory that an event takes in the collected and in the written answer.
    pub(super) fn written_bytes(event: &ChatEvent) -> usize {
        match event {
            ChatEvent::Reasoning(text) => 3 * text.len(),
            ChatEvent::Content { text, tokens } => {
                let entries: usize = tokens.iter().map(|token| 1 + token.sampled.top.len()).sum();
                3 * text.len() + entries * LOGPROB_BYTES
            }
            ChatEvent::ToolCall(call) => 3 * (call.name.len() + call.arguments.len()),
            _ => 0,
        }
    }
}

/// The log-probabilities of tokens, written without an object of each in memory.
pub(super) struct LogProbs<'a> {
    tokens: &'a [AnswerToken],
    tokenizer: &'a dyn Tokenizer,
}

#[derive(Serialize)]
struct LogProbEntry {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_logprobs: Option<Vec<LogProbEntry>>,
}

impl LogProbEntry {
    fn new(bytes: Vec<u8>, logprob: f32) -> Self {
        let token = String::from_utf8_lossy(&bytes).into_owned();
        Self { token, logprob, bytes, top_logprobs: None }
    }
}

impl<'a> LogProbs<'a> {
    pub(super) fn new(tokens: &'a [AnswerToken], tokenizer: &'a dyn Tokenizer) -> Self {
        Self { tokens, tokenizer }
    }

    fn alternative(&self, token: Token, logprob: f32) -> LogProbEntry {
        let mut bytes = Vec::new();
        self.tokenizer.decode(token, &mut bytes);
        LogProbEntry::new(bytes, logprob)
    }
}

impl Serialize for LogProbs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("LogProbs", 2)?;
        object.serialize_field("content", &Entries(self))?;
        object.serialize_field("refusal", &Value::Null)?;
        object.end()
    }
}

struct Entries<'a>(&'a LogProbs<'a>);

impl Serialize for Entries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(logprobs) = self;
        let mut list = serializer.serialize_seq(Some(logprobs.tokens.len()))?;
        for AnswerToken { sampled, bytes } in logprobs.tokens {
            let mut entry = LogProbEntry::new(bytes.clone(), sampled.logprob);
            let top = sampled.top.iter();
            let top = top.map(|&(token, logprob)| logprobs.alternative(token, logprob));
            entry.top_logprobs = Some(top.collect());
            list.serialize_element(&entry)?;
        }
        list.end()
    }
}

fn usage(total: &RequestUsage) -> Value {
    json!({
        "prompt_tokens": total.prompt,
        "completion_tokens": total.completion,
        "total_tokens": total.prompt + total.completion,
        "prompt_tokens_details": { "cached_tokens": total.cached },
        "completion_tokens_details": {
            "reasoning_tokens": total.reasoning,
            "accepted_prediction_tokens": total.accepted,
            "rejected_prediction_tokens": total.drafted - total.accepted,
        },
    })
}

fn timings(total: &RequestUsage) -> Value {
    let (timings, rates) = (&total.timings, &total.rates);
    json!({
        "queued_seconds": timings.queued.as_secs_f64(),
        "prefill_seconds": timings.prefill.as_secs_f64(),
        "decode_seconds": timings.decode.as_secs_f64(),
        "tokens_per_second": rates.tokens_per_second,
        "prefill_tokens_per_second": rates.prefill_tokens_per_second,
        "ar_decode_tokens_per_second": rates.ar_decode_tokens_per_second,
        "accepted_drafts_per_verify": rates.accepted_drafts_per_verify,
    })
}
