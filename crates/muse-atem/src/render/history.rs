//! Renders the messages of a conversation.

use std::collections::HashMap;

use muse_core::contract::{Message, Part, ToolCall};
use muse_core::{Error, Result};

use super::prompt::PromptBuilder;
use super::system;
use crate::json::Json;
use crate::special_token::SpecialToken;

pub(super) fn write(
    messages: &[Message],
    suffix: &system::SystemSuffix,
    prompt: &mut PromptBuilder,
) -> Result<()> {
    let tool_names = tool_names(messages);
    for (i, message) in messages.iter().enumerate() {
        match message {
            Message::System(content) => suffix.write(content, prompt),
            Message::User(content) => {
                prompt.header("user");
                prompt.content(content);
                prompt.special(SpecialToken::EndOfTurn);
            }
            Message::Assistant { reasoning, content, calls, recipient, end_turn } => {
                if let Some(reasoning) = reasoning.as_deref().filter(|text| !text.is_empty()) {
                    prompt.assistant("self");
                    prompt.text(reasoning);
                    prompt.special(SpecialToken::EndOfMessage);
                }
                if calls.is_empty() {
                    write_answer(content, recipient.as_deref(), *end_turn, prompt);
                } else {
                    let more_follows =
                        matches!(messages.get(i + 1), Some(Message::Assistant { .. }));
                    write_calls(calls, more_follows, prompt)
                        .map_err(|e| Error::Invalid(format!("message {i}: {e}")))?;
                }
            }
            Message::Tool { name, call_id, content } => {
                let id = call_id.as_deref().unwrap_or("");
                let named = name.as_deref().filter(|name| !name.is_empty());
                let name = named.or_else(|| tool_names.get(id).copied()).unwrap_or(id);
                write_result(name, content, prompt);
            }
        }
    }
    Ok(())
}

/// The function of the last call with each id.
fn tool_names(messages: &[Message]) -> HashMap<&str, &str> {
    let mut names = HashMap::new();
    for message in messages {
        if let Message::Assistant { calls, .. } = message {
            names.extend(calls.iter().map(|call| (call.id.as_str(), call.name.as_str())));
        }
    }
    names
}

fn write_answer(
    content: &[Part],
    recipient: Option<&str>,
    end_turn: Option<bool>,
    prompt: &mut PromptBuilder,
) {
    let recipient = recipient.filter(|name| !name.is_empty()).unwrap_or("user");
    prompt.assistant(recipient);
    prompt.content(content);
    let ends = end_turn.unwrap_or(recipient == "user");
    prompt.special(if ends { SpecialToken::EndOfTurn } else { SpecialToken::EndOfMessage });
}

/// One message per call; `more_follows` when the next message is the assistant's too.
fn write_calls(
    calls: &[ToolCall],
    more_follows: bool,
    prompt: &mut PromptBuilder,
) -> Result<(), String> {
    for (i, call) in calls.iter().enumerate() {
        let members = arguments(call)?;
        prompt.assistant(&call.name);
        prompt.text(&format!("<atem:function_calls>\n<atem:invoke name=\"{}\">\n", call.name));
        for (key, value) in &members {
            prompt.text(&format!("<atem:parameter name=\"{key}\">"));
            prompt.text(&parameter_text(value));
            prompt.text("</atem:parameter>\n");
        }
        prompt.text("</atem:invoke>\n</atem:function_calls>");
        let more = more_follows || i + 1 < calls.len();
        prompt.special(if more { SpecialToken::EndOfMessage } else { SpecialToken::EndOfTurn });
    }
    Ok(())
}

/// The arguments of a call; clients send an empty text or `null` when there are none.
pub(crate) fn arguments(call: &ToolCall) -> Result<Vec<(String, Json)>, String> {
    if call.arguments.trim().is_empty() {
        return Ok(Vec::new());
    }
    match Json::parse(&call.arguments) {
        Ok(Json::Object(members)) => Ok(members),
        Ok(Json::Null) => Ok(Vec::new()),
        Ok(other) => Err(format!(
            "call of `{}`: tool call arguments are {}, expected an object",
            call.name,
            other.kind()
        )),
        Err(error) => {
            Err(format!("call of `{}`: tool call arguments are not valid JSON: {error}", call.name))
        }
    }
}

/// A value as a parameter holds it: strings and numbers as they are, the rest as JSON.
fn parameter_text(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Number(number) => number.to_python(),
        value => value.to_python(),
    }
}

fn write_result(name: &str, content: &[Part], prompt: &mut PromptBuilder) {
    prompt.header(&format!("tool {name}"));
    prompt.text(&format!("<tool_output name=\"{name}\">\n"));
    prompt.content(content);
    prompt.text("\n</tool_output>");
    prompt.special(SpecialToken::EndOfTurn);
}
