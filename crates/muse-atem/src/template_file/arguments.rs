//! A conversation as the keyword arguments of a chat template.

use muse_core::contract::{Content, Conversation, Message, Part, Tool, ToolCall};
use muse_core::{Error, Result};

use super::clock::DATE;
use crate::json::Json;

/// Private-use characters; one that the conversation does not contain becomes the guard.
const GUARDS: std::ops::RangeInclusive<char> = '\u{f0000}'..='\u{ffffd}';

/// The arguments and the guard, a character inserted after every `|` of the conversation, so that
/// nothing in it, nor a part of it beside text of the template, spells a special token.
pub(super) fn of(conversation: &Conversation) -> Result<(Json, char)> {
    let messages = conversation.messages.iter().map(message).collect::<Result<_>>()?;
    let mut members = vec![
        ("messages".to_owned(), Json::Array(messages)),
        ("add_generation_prompt".to_owned(), Json::Bool(!conversation.omit_generation_prompt)),
        ("bos_token".to_owned(), text(crate::special_token::BEGIN_OF_TEXT)),
        ("eos_token".to_owned(), text("<|end_of_text|>")),
    ];
    if !conversation.tools.is_empty() {
        let tools = conversation.tools.iter().map(tool).collect::<Result<_>>()?;
        members.push(("tools".to_owned(), Json::Array(tools)));
    }
    if !conversation.namespaces.is_empty() {
        let namespaces =
            conversation.namespaces.iter().map(|(name, about)| (name.clone(), text(about)));
        let namespaces = Json::object(namespaces.collect());
        members.push(("tool_namespace_descriptions".to_owned(), namespaces));
    }
    for (name, value) in [
        ("reasoning_strength", &conversation.reasoning_strength),
        ("knowledge_cutoff", &conversation.knowledge_cutoff),
        (DATE, &conversation.current_date),
    ] {
        members.extend(value.as_ref().map(|value| (name.to_owned(), text(value))));
    }
    let plain = Json::Object(members);
    let json = plain.to_compact();
    let guard =
        GUARDS.into_iter().find(|character| !json.contains(*character)).ok_or_else(|| {
            Error::Invalid(
                "the conversation holds every private-use character of plane 15; take one out"
                    .to_owned(),
            )
        })?;
    Ok((guarded(plain, guard), guard))
}

fn guarded(value: Json, guard: char) -> Json {
    let guard_text = |text: String| match text.contains('|') {
        true => text.replace('|', &format!("|{guard}")),
        false => text,
    };
    match value {
        Json::String(text) => Json::String(guard_text(text)),
        Json::Array(items) => {
            Json::Array(items.into_iter().map(|item| guarded(item, guard)).collect())
        }
        Json::Object(members) => {
            let members = members.into_iter().map(|(key, value)| match key.as_str() {
                "bos_token" | "eos_token" => (key, value),
                _ => (guard_text(key), guarded(value, guard)),
            });
            Json::Object(members.collect())
        }
        value => value,
    }
}

fn message(message: &Message) -> Result<Json> {
    let (role, parts) = match message {
        Message::System(content) => ("system", content),
        Message::User(content) => ("user", content),
        Message::Assistant { content, .. } => ("assistant", content),
        Message::Tool { content, .. } => ("tool", content),
    };
    let mut members = vec![("role".to_owned(), text(role)), ("content".to_owned(), content(parts))];
    let mut optional = |key: &str, value: Option<Json>| {
        members.extend(value.map(|value| (key.to_owned(), value)));
    };
    match message {
        Message::Assistant { reasoning, calls, recipient, end_turn, .. } => {
            optional("reasoning_content", reasoning.as_deref().map(text));
            if !calls.is_empty() {
                let calls = calls.iter().map(call).collect::<Result<_>>()?;
                optional("tool_calls", Some(Json::Array(calls)));
            }
            optional("recipient", recipient.as_deref().map(text));
            optional("end_turn", end_turn.map(Json::Bool));
        }
        Message::Tool { name, call_id, .. } => {
            optional("name", name.as_deref().map(text));
            optional("tool_call_id", call_id.as_deref().map(text));
        }
        Message::System(_) | Message::User(_) => {}
    }
    Ok(Json::Object(members))
}

fn content(parts: &Content) -> Json {
    let typed = |kind: &str| vec![("type".to_owned(), text(kind))];
    match parts.as_slice() {
        [] => text(""),
        [Part::Text(only)] => text(only),
        parts => Json::Array(
            parts
                .iter()
                .map(|part| match part {
                    Part::Text(part) => {
                        let mut members = typed("text");
                        members.push(("text".to_owned(), text(part)));
                        Json::Object(members)
                    }
                    Part::Image => Json::Object(typed("image")),
                    Part::Video => Json::Object(typed("video")),
                })
                .collect(),
        ),
    }
}

fn call(call: &ToolCall) -> Result<Json> {
    let arguments = Json::Object(crate::render::arguments(call).map_err(Error::Invalid)?);
    let function = Json::Object(vec![
        ("name".to_owned(), text(&call.name)),
        ("arguments".to_owned(), arguments),
    ]);
    Ok(Json::Object(vec![
        ("id".to_owned(), text(&call.id)),
        ("type".to_owned(), text("function")),
        ("function".to_owned(), function),
    ]))
}

fn tool(tool: &Tool) -> Result<Json> {
    let parameters = Json::parse(&tool.parameters).map_err(|e| {
        Error::Invalid(format!("tool `{}`: parameters are not a JSON schema: {e}", tool.name))
    })?;
    let function = Json::Object(vec![
        ("name".to_owned(), text(&tool.name)),
        ("description".to_owned(), text(&tool.description)),
        ("parameters".to_owned(), parameters),
    ]);
    Ok(Json::Object(vec![("type".to_owned(), text("function")), ("function".to_owned(), function)]))
}

fn text(text: &str) -> Json {
    Json::String(text.to_owned())
}
