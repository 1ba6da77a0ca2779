//! Reads the keyword arguments of the published chat template, as leniently as the template: what
//! it does not know renders nothing. For input of `apply_chat_template`; requests of clients are
//! read by [`super::ChatRequest`], which ignores nothing in messages.

use muse_core::contract::{Content, Conversation, Message, Part, Tool, ToolCall};

use super::error::RequestError;
use super::fields::{Fields, wrong};
use crate::json::Json;

/// The conversation described by the template's arguments.
///
/// # Errors
/// Where the template raises: arguments of a call that are not a mapping, a tool without
/// description or parameters, namespace descriptions that are not a mapping; and where a value has
/// a type the template cannot print.
pub fn from_template_arguments(arguments: &Json) -> Result<Conversation, RequestError> {
    let fields = Fields::whole(arguments)?;
    let mut messages = Vec::new();
    for (i, message) in fields.list("messages")?.unwrap_or_default().iter().enumerate() {
        messages
            .extend(read_message(&Fields::of(message, fields.path(&format!("messages[{i}]")))?)?);
    }
    let mut tools = Vec::new();
    for (i, value) in fields.list("tools")?.unwrap_or_default().iter().enumerate() {
        tools.push(tool(&Fields::of(value, fields.path(&format!("tools[{i}]")))?)?);
    }
    let text = |key| Ok::<_, RequestError>(fields.text(key)?.map(str::to_owned));
    Ok(Conversation {
        messages,
        tools,
        namespaces: super::tools::namespaces(&fields, &Fields::default())?,
        reasoning_strength: text("reasoning_strength")?,
        knowledge_cutoff: text("knowledge_cutoff")?,
        current_date: text("current_date")?,
        ..Conversation::default()
    })
}

fn read_message(message: &Fields<'_>) -> Result<Option<Message>, RequestError> {
    let text = |key| Ok::<_, RequestError>(message.text(key)?.map(str::to_owned));
    Ok(match message.text("role")? {
        Some("system") => Some(Message::System(content(message)?)),
        Some("user") => Some(Message::User(content(message)?)),
        Some("assistant") => Some(Message::Assistant {
            reasoning: text("reasoning_content")?,
            content: content(message)?,
            calls: calls(message)?,
            recipient: text("recipient")?,
            end_turn: message.value("end_turn").map(truth),
        }),
        Some("tool") => Some(Message::Tool {
            name: text("name")?,
            call_id: text("tool_call_id")?,
            content: content(message)?,
        }),
        _ => None,
    })
}

/// Python's truth of a value.
fn truth(value: &Json) -> bool {
    match value {
        Json::Null => false,
        Json::Bool(value) => *value,
        Json::Number(number) => number.to_f64() != 0.0,
        Json::String(text) => !text.is_empty(),
        Json::Array(items) => !items.is_empty(),
        Json::Object(members) => !members.is_empty(),
    }
}

fn content(message: &Fields<'_>) -> Result<Content, RequestError> {
    match message.value("content") {
        None => Ok(Vec::new()),
        Some(Json::String(text)) => Ok(vec![Part::Text(text.clone())]),
        Some(Json::Array(parts)) => {
            let known = parts.iter().filter_map(|part| match part.member("type")?.as_str()? {
                "image" => Some(Part::Image),
                "video" => Some(Part::Video),
                "text" => Some(Part::Text(part.member("text")?.as_str()?.to_owned())),
                _ => None,
            });
            Ok(known.collect())
        }
        Some(other) => Err(wrong(message.path("content"), "a string or a list of parts", other)),
    }
}

fn calls(message: &Fields<'_>) -> Result<Vec<ToolCall>, RequestError> {
    let mut calls = Vec::new();
    for (i, call) in message.list("tool_calls")?.unwrap_or_default().iter().enumerate() {
        let call = Fields::of(call, message.path(&format!("tool_calls[{i}]")))?;
        let id = call.text("id")?.unwrap_or_default().to_owned();
        let function = call.object("function")?.unwrap_or(call);
        let arguments = match function.raw("arguments") {
            Some(mapping @ Json::Object(_)) => mapping.to_compact(),
            _ => return function.error("arguments", "is no mapping"),
        };
        let name = function.required_text("name")?.to_owned();
        calls.push(ToolCall { id, name, arguments });
    }
    Ok(calls)
}

fn tool(outer: &Fields<'_>) -> Result<Tool, RequestError> {
    let fields = outer.object("function")?.unwrap_or_else(|| outer.clone());
    let Some(parameters) = fields.raw("parameters") else {
        return fields.error("parameters", "is missing");
    };
    Ok(Tool {
        name: fields.required_text("name")?.to_owned(),
        description: fields.required_text("description")?.to_owned(),
        parameters: parameters.to_compact(),
        strict: false,
    })
}
