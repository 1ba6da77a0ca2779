//! Answers as OpenAI's chat completions: whole, and in chunks.

use std::time::{SystemTime, UNIX_EPOCH};

use muse_core::contract::{Rates, Sampled, Timings, Token, Tokenizer, ToolCall};
use serde_json::{Value, json};

use crate::service::{ChatEvent, End, Spent};

/// What all objects of one answer share.
pub(super) struct Head {
    id: String,
    created: u64,
    model: String,
}

impl Head {
    pub(super) fn new(model: &str) -> Self {
        let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let id = format!("chatcmpl-{:016x}", crate::service::random());
        Self { id, created, model: model.to_owned() }
    }

    pub(super) fn completion(&self, choices: Vec<Value>, spent: &[Spent]) -> Value {
        let mut object = self.object("chat.completion", choices);
        object["usage"] = usage(spent);
        object["timings"] = timings(spent);
        object
    }

    /// A chunk. `usage` is there, as null, when a chunk with it is to come.
    pub(super) fn chunk(&self, choice: Value, usage_follows: bool) -> Value {
        let mut object = self.object("chat.completion.chunk", vec![choice]);
        if usage_follows {
            object["usage"] = Value::Null;
        }
        object
    }

    /// The chunk behind all choices.
    pub(super) fn usage_chunk(&self, spent: &[Spent]) -> Value {
        let mut object = self.object("chat.completion.chunk", Vec::new());
        object["usage"] = usage(spent);
        object["timings"] = timings(spent);
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
pub(super) fn delta(index: u32, delta: Value, logprobs: Value, finish: Option<&End>) -> Value {
    json!({
        "index": index,
        "delta": delta,
        "logprobs": logprobs,
        "finish_reason": finish.map(finish_reason),
    })
}

pub(super) fn finish_reason(end: &End) -> &'static str {
    match end {
        End::StopToken(_) | End::StopText(_) => "stop",
        End::Length => "length",
        End::Calls => "tool_calls",
    }
}

pub(super) fn call(call: &ToolCall) -> Value {
    json!({
        "id": call.id,
        "type": "function",
        "function": { "name": call.name, "arguments": call.arguments },
    })
}

/// A choice that is collected until it is complete.
#[derive(Default)]
pub(super) struct Collected {
    content: String,
    reasoning: String,
    calls: Vec<Value>,
    tokens: Vec<Sampled>,
    pub(super) spent: Spent,
    end: Option<End>,
}

impl Collected {
    pub(super) fn take(&mut self, event: ChatEvent) {
        match event {
            ChatEvent::Progress { .. } | ChatEvent::CallPart(_) => {}
            ChatEvent::Think(text) => self.reasoning.push_str(&text),
            ChatEvent::Say { text, tokens } => {
                self.content.push_str(&text);
                self.tokens.extend(tokens);
            }
            ChatEvent::Call(made) => self.calls.push(call(&made)),
            ChatEvent::Spent(spent) => self.spent = spent,
            ChatEvent::End(end) => self.end = Some(end),
        }
    }

    /// The choice of a completion. `logprobs` whether they were asked for.
    pub(super) fn choice(&self, index: usize, logprobs: bool, tokenizer: &dyn Tokenizer) -> Value {
        let silent = self.content.is_empty() && !self.calls.is_empty();
        let content = if silent { Value::Null } else { json!(self.content) };
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
            "logprobs": if logprobs { log_probabilities(&self.tokens, tokenizer) } else { Value::Null },
            "finish_reason": self.end.as_ref().map(finish_reason),
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
    let content = tokens.iter().map(|picked| {
        let mut object = entry(picked.token, picked.logprob);
        object["top_logprobs"] =
            picked.top.iter().map(|&(token, logprob)| entry(token, logprob)).collect();
        object
    });
    json!({ "content": content.collect::<Vec<_>>(), "refusal": null })
}

/// The prompt counts once, however many answers there are.
fn usage(spent: &[Spent]) -> Value {
    let prompt = spent.first().map_or(0, |first| first.usage.prompt);
    let cached = spent.first().map_or(0, |first| first.usage.cached);
    let sum = |count: fn(&Spent) -> u32| spent.iter().map(count).sum::<u32>();
    let completion = sum(|s| s.usage.completion);
    let accepted = sum(|s| s.usage.accepted.iter().sum());
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": { "cached_tokens": cached },
        "completion_tokens_details": {
            "reasoning_tokens": sum(|s| s.reasoning),
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": sum(|s| s.usage.drafted) - accepted,
        },
    })
}

/// Times and rates of all answers together. Times are the longest of each.
fn timings(spent: &[Spent]) -> Value {
    let longest = spent.iter().map(|s| s.timings).fold(Timings::default(), Timings::max);
    let rates = Rates::of(spent.iter().map(|s| (&s.usage, &s.timings)));
    json!({
        "queued_seconds": longest.queued.as_secs_f64(),
        "prefill_seconds": longest.prefill.as_secs_f64(),
        "decode_seconds": longest.decode.as_secs_f64(),
        "tokens_per_second": rates.tokens_per_second,
        "prefill_tps": rates.prefill_tokens_per_second,
        "ar_decode_tokens_per_second": rates.ar_decode_tokens_per_second,
        "accepted_drafts_per_verify": rates.accepted_drafts_per_verify,
    })
}
