//! Answers as OpenAI's chat completion objects: whole, and in chunks.

use std::time::{SystemTime, UNIX_EPOCH};

use muse_core::contract::{Sampled, Token, Tokenizer, ToolCall};
use serde_json::{Value, json};

use crate::service::{ChatEvent, ChatFinish, ChatUsage, RequestUsage, random_u64};

/// What all objects of one answer share.
pub(super) struct ObjectHead {
    id: String,
    created: u64,
    model: String,
}

impl ObjectHead {
    pub(super) fn new(model: &str) -> Self {
        let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let id = format!("chatcmpl-{:016x}", random_u64());
        Self { id, created, model: model.to_owned() }
    }

    pub(super) fn completion(&self, choices: Vec<Value>, usage: &[ChatUsage]) -> Value {
        self.with_usage(self.object("chat.completion", choices), usage)
    }

    /// A chunk. `usage_follows`: `usage` is null here, since a later chunk has it.
    pub(super) fn chunk(&self, choice: Value, usage_follows: bool) -> Value {
        let mut object = self.object("chat.completion.chunk", vec![choice]);
        if usage_follows {
            object["usage"] = Value::Null;
        }
        object
    }

    /// The chunk after those of all choices.
    pub(super) fn usage_chunk(&self, usage: &[ChatUsage]) -> Value {
        self.with_usage(self.object("chat.completion.chunk", Vec::new()), usage)
    }

    fn with_usage(&self, mut object: Value, choices: &[ChatUsage]) -> Value {
        let total = RequestUsage::new(choices);
        object["usage"] = usage(&total);
        object["timings"] = timings(&total);
        object
    }

    fn object(&self, kind: &str, choices: Vec<Value>) -> Value {
        json!({
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }
}

/// A choice of a chunk.
pub(super) fn delta(
    index: u32,
    delta: Value,
    logprobs: Value,
    finish: Option<&ChatFinish>,
) -> Value {
    json!({
        "index": index,
        "delta": delta,
        "logprobs": logprobs,
        "finish_reason": finish.map(finish_reason),
    })
}

pub(super) fn finish_reason(finish: &ChatFinish) -> &'static str {
    match finish {
        ChatFinish::StopToken(_) | ChatFinish::StopText(_) => "stop",
        ChatFinish::Length => "length",
        ChatFinish::ToolCalls => "tool_calls",
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
    tokens: Vec<Sampled>,
    pub(super) usage: ChatUsage,
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

    /// The choice of a completion. `logprobs`: whether they were requested.
    pub(super) fn object(&self, index: usize, logprobs: bool, tokenizer: &dyn Tokenizer) -> Value {
        let only_calls = self.content.is_empty() && !self.calls.is_empty();
        let content = if only_calls { Value::Null } else { json!(self.content) };
        let mut message = json!({ "role": "assistant", "content": content, "refusal": null });
        if !self.reasoning.is_empty() {
            message["reasoning_content"] = json!(self.reasoning);
        }
        if !self.calls.is_empty() {
            message["tool_calls"] = json!(self.calls);
        }
        json!({
            "index": index,
            "message": message,
            "logprobs": logprobs.then(|| log_probabilities(&self.tokens, tokenizer)),
            "finish_reason": self.finish.as_ref().map(finish_reason),
        })
    }
}

pub(super) fn log_probabilities(tokens: &[Sampled], tokenizer: &dyn Tokenizer) -> Value {
    let entry = |token: Token, logprob: f32| {
        let mut bytes = Vec::new();
        tokenizer.decode(token, &mut bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        json!({ "token": text, "logprob": logprob, "bytes": bytes })
    };
    let content = tokens.iter().map(|sampled| {
        let mut object = entry(sampled.token, sampled.logprob);
        object["top_logprobs"] =
            sampled.top.iter().map(|&(token, logprob)| entry(token, logprob)).collect();
        object
    });
    json!({ "content": content.collect::<Vec<_>>(), "refusal": null })
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
