//! The messages of a conversation.

use std::collections::HashMap;

use muse_core::contract::{Message, Part, ToolCall};
use muse_core::{Error, Result};

use super::{Prompt, system};
use crate::json::Json;
use crate::mark::Mark;

pub(super) fn write(
    messages: &[Message],
    ending: &system::Ending,
    prompt: &mut Prompt,
) -> Result<()> {
    let callers = callers(messages);
    for (i, turn) in messages.iter().enumerate() {
        match turn {
            Message::System(content) => ending.write(content, prompt),
            Message::User(content) => {
                prompt.header("user");
                prompt.content(content);
                prompt.mark(Mark::EndOfTurn);
            }
            Message::Assistant { reasoning, content, calls, recipient, end_turn } => {
                if let Some(reasoning) = reasoning.as_deref().filter(|text| !text.is_empty()) {
                    prompt.assistant("self");
                    prompt.text(reasoning);
                    prompt.mark(Mark::EndOfMessage);
                }
                if calls.is_empty() {
                    write_answer(content, recipient.as_deref(), *end_turn, prompt);
                } else {
                    let goes_on = matches!(messages.get(i + 1), Some(Message::Assistant { .. }));
                    write_calls(calls, goes_on, prompt)
                        .map_err(|e| Error::Invalid(format!("turn {i}: {e}")))?;
                }
            }
            Message::Tool { name, call_id, content } => {
                let id = call_id.as_deref().unwrap_or("");
                let named = name.as_deref().filter(|name| !name.is_empty());
                let name = named.or_else(|| callers.get(id).copied()).unwrap_or(id);
                write_result(name, content, prompt);
            }
        }
    }
    Ok(())
}

/// The function of the last call with each id.
fn callers(messages: &[Message]) -> HashMap<&str, &str> {
    let mut names = HashMap::new();
    for turn in messages {
        if let Message::Assistant { calls, .. } = turn {
            names.extend(calls.iter().map(|call| (call.id.as_str(), call.name.as_str())));
        }
    }
    names
}

fn write_answer(
    content: &[Part],
    recipient: Option<&str>,
    end_turn: Option<bool>,
    prompt: &mut Prompt,
) {
    let recipient = recipient.filter(|name| !name.is_empty()).unwrap_or("user");
    prompt.assistant(recipient);
    prompt.content(content);
    let ends = end_turn.unwrap_or(recipient == "user");
    prompt.mark(if ends { Mark::EndOfTurn } else { Mark::EndOfMessage });
}

/// One message a call; `goes_on` when the assistant also has the next turn.
fn write_calls(calls: &[ToolCall], goes_on: bool, prompt: &mut Prompt) -> Result<(), String> {
    for (i, call) in calls.iter().enumerate() {
        let members = arguments(call)?;
        prompt.assistant(&call.name);
        prompt.text(&format!("<atem:function_calls>\n<atem:invoke name=\"{}\">\n", call.name));
        for (key, value) in &members {
            prompt.text(&format!("<atem:parameter name=\"{key}\">"));
            prompt.text(&bare(value));
            prompt.text("</atem:parameter>\n");
        }
        prompt.text("</atem:invoke>\n</atem:function_calls>");
        let more = goes_on || i + 1 < calls.len();
        prompt.mark(if more { Mark::EndOfMessage } else { Mark::EndOfTurn });
    }
    Ok(())
}

/// The arguments of a call; clients send nothing, or `null`, when there are none.
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
        Err(fault) => {
            Err(format!("call of `{}`: tool call arguments are not valid JSON: {fault}", call.name))
        }
    }
}

/// A value as a parameter holds it: strings and numbers bare, the rest as JSON.
fn bare(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Number(number) => number.to_python(),
        value => value.to_python(),
    }
}

fn write_result(name: &str, content: &[Part], prompt: &mut Prompt) {
    prompt.header(&format!("tool {name}"));
    prompt.text(&format!("<tool_output name=\"{name}\">\n"));
    prompt.content(content);
    prompt.text("\n</tool_output>");
    prompt.mark(Mark::EndOfTurn);
}
