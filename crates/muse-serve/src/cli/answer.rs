//! An answer as it grows, and the JSON that tells of it.

use muse_proto::v1::{self, chat_response::Event};
use serde_json::{Value, json};

/// What has been received of an answer.
#[derive(Clone, Default)]
pub(super) struct Answer {
    pub(super) reasoning: String,
    pub(super) content: String,
    pub(super) calls: Vec<v1::ToolCall>,
    /// Calls that were run on the way to it, with what came back.
    pub(super) results: Vec<(v1::ToolCall, String)>,
    pub(super) usage: v1::Usage,
    /// None until the answer is complete.
    pub(super) finish: Option<v1::FinishReason>,
}

impl Answer {
    pub(super) fn push(&mut self, event: Event) {
        match event {
            Event::Progress(_) | Event::ToolCallDelta(_) => {}
            Event::Reasoning(delta) => self.reasoning.push_str(&delta.text),
            Event::Text(delta) => self.content.push_str(&delta.text),
            Event::ToolCall(call) => self.calls.push(call),
            Event::Usage(usage) => self.usage = usage,
            Event::Finish(finish) => self.finish = Some(finish.reason()),
        }
    }

    pub(super) fn is_visible(&self) -> bool {
        !self.content.is_empty() || !self.calls.is_empty()
    }

    /// The answer as a turn of the conversation.
    pub(super) fn into_message(self) -> v1::Message {
        v1::Message {
            reasoning: self.reasoning,
            tool_calls: self.calls,
            ..message(v1::Role::Assistant, self.content)
        }
    }

    /// The whole answer as one object.
    pub(super) fn json(&self) -> Value {
        let call = |call: &v1::ToolCall| json!({ "id": call.id, "name": call.name, "arguments": call.arguments_json });
        let mut object = json!({
            "reasoning": self.reasoning,
            "content": self.content,
            "tool_calls": self.calls.iter().map(call).collect::<Vec<_>>(),
            "finish_reason": self.finish.map(reason),
            "usage": usage(&self.usage),
            "timings": timings(&self.usage),
        });
        if !self.results.is_empty() {
            let result = |(made, result): &(v1::ToolCall, String)| {
                let mut object = call(made);
                object["result"] = json!(result);
                object
            };
            object["tool_results"] = self.results.iter().map(result).collect();
        }
        object
    }
}

/// A message of plain text.
pub(super) fn message(role: v1::Role, text: String) -> v1::Message {
    let part = v1::Part { part: Some(v1::part::Part::Text(text)) };
    v1::Message { role: role.into(), content: vec![part], ..v1::Message::default() }
}

pub(super) fn reason(reason: v1::FinishReason) -> &'static str {
    match reason {
        v1::FinishReason::Unspecified => "unknown",
        v1::FinishReason::Stop => "stop",
        v1::FinishReason::Length => "length",
        v1::FinishReason::ToolCalls => "tool_calls",
    }
}

pub(super) fn usage(usage: &v1::Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens,
        "completion_tokens": usage.completion_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "drafted_tokens": usage.drafted_tokens,
        "accepted_drafts": usage.accepted_drafts,
    })
}

/// What an answer took, in a line.
pub(super) fn usage_line(usage: &v1::Usage) -> String {
    let timings = usage.timings.unwrap_or_default();
    let accepted: u32 = usage.accepted_drafts.iter().sum();
    format!(
        "prompt {} tokens, {} of them cached, {:.0}/s; answer {} tokens, {} of them reasoning, \
         {:.0}/s; drafts accepted {accepted} of {} in {} verifies",
        usage.prompt_tokens,
        usage.cached_tokens,
        timings.prefill_tokens_per_second,
        usage.completion_tokens,
        usage.reasoning_tokens,
        timings.ar_decode_tokens_per_second,
        usage.drafted_tokens,
        usage.accepted_drafts.len(),
    )
}

pub(super) fn timings(usage: &v1::Usage) -> Value {
    let timings = usage.timings.unwrap_or_default();
    json!({
        "queued_seconds": timings.queued_seconds,
        "prefill_seconds": timings.prefill_seconds,
        "decode_seconds": timings.decode_seconds,
        "tokens_per_second": timings.tokens_per_second,
        "prefill_tokens_per_second": timings.prefill_tokens_per_second,
        "ar_decode_tokens_per_second": timings.ar_decode_tokens_per_second,
        "accepted_drafts_per_verify": timings.accepted_drafts_per_verify,
    })
}
