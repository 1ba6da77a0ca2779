//! Reads the messages of a request.

use muse_core::contract::{Content, Message, Part, ToolCall};

use super::error::RequestError;
use super::fields::{Fields, wrong};
use crate::json::Json;

/// A picture or video that a message holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// Which of both.
    pub kind: MediaKind,
    /// Where it is: a `data:` URL or an address.
    pub url: String,
    /// The path of the field it came in, for error messages.
    pub path: String,
}

/// What a [`Media`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaKind {
    /// A picture.
    Image,
    /// A video.
    Video,
}

/// All messages, and their media in order.
pub(super) fn read(fields: &Fields<'_>) -> Result<(Vec<Message>, Vec<Media>), RequestError> {
    let Some(messages) = fields.list("messages")? else {
        return fields.error("messages", "is missing, expected a list of messages");
    };
    if messages.is_empty() {
        return fields.error("messages", "is empty, expected at least one message");
    }
    let mut media = Vec::new();
    let messages = messages.iter().enumerate().map(|(i, message)| {
        read_message(&Fields::of(message, fields.path(&format!("messages[{i}]")))?, &mut media)
    });
    let messages = messages.collect::<Result<_, _>>()?;
    Ok((messages, media))
}

fn read_message(message: &Fields<'_>, media: &mut Vec<Media>) -> Result<Message, RequestError> {
    let role = message.required_text("role")?;
    const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];
    if !ROLES.contains(&role) {
        let roles = "system, developer, user, assistant or tool";
        return message.error("role", format!("unknown role `{role}`, expected {roles}"));
    }
    // Fields that belong to another role are ignored, but they must have their type.
    for key in ["reasoning_content", "reasoning", "name", "tool_call_id", "recipient"] {
        message.text(key)?;
    }
    message.list("tool_calls")?;
    message.object("function_call")?;
    let content = content(message, media)?;
    let text = |key| Ok::<_, RequestError>(message.text(key)?.map(str::to_owned));
    Ok(match role {
        "user" => Message::User(content),
        "assistant" => Message::Assistant {
            reasoning: text("reasoning_content")?.or(text("reasoning")?),
            content,
            calls: calls(message)?,
            recipient: recipient(message)?,
            end_turn: message.boolean("end_turn")?,
        },
        // The result of a `function_call`, which has no id.
        "function" => {
            let name = message.required_text("name")?;
            check_spelled_name(message, "name", name)?;
            Message::Tool { name: Some(name.to_owned()), call_id: None, content }
        }
        "tool" => {
            let name = text("name")?;
            if let Some(name) = &name {
                check_spelled_name(message, "name", name)?;
            }
            Message::Tool { name, call_id: text("tool_call_id")?, content }
        }
        _ => Message::System(content),
    })
}

fn recipient(message: &Fields<'_>) -> Result<Option<String>, RequestError> {
    let Some(name) = message.text("recipient")? else { return Ok(None) };
    check_spelled_name(message, "recipient", name)?;
    Ok(Some(name.to_owned()))
}

fn content(message: &Fields<'_>, media: &mut Vec<Media>) -> Result<Content, RequestError> {
    let mut content = attached(message, media)?;
    match message.value("content") {
        None => {}
        Some(Json::String(text)) => content.push(Part::Text(text.clone())),
        Some(Json::Array(parts)) => {
            for (i, value) in parts.iter().enumerate() {
                let fields = Fields::of(value, message.path(&format!("content[{i}]")))?;
                content.push(part(&fields, media)?);
            }
        }
        Some(other) => {
            return Err(wrong(message.path("content"), "a string or a list of parts", other));
        }
    }
    Ok(content)
}

/// Pictures that some clients attach beside the text, as URLs or as plain base64.
fn attached(message: &Fields<'_>, media: &mut Vec<Media>) -> Result<Content, RequestError> {
    let mut content = Vec::new();
    for (i, image) in message.list("images")?.unwrap_or_default().iter().enumerate() {
        let path = message.path(&format!("images[{i}]"));
        let Json::String(image) = image else { return Err(wrong(path, "a string", image)) };
        let url = match image.contains(':') {
            true => image.clone(),
            false => format!("data:;base64,{image}"),
        };
        media.push(Media { kind: MediaKind::Image, url, path });
        content.push(Part::Image);
    }
    Ok(content)
}

fn part(part: &Fields<'_>, media: &mut Vec<Media>) -> Result<Part, RequestError> {
    let kind = part.required_text("type")?;
    match kind {
        "text" | "input_text" | "output_text" => {
            Ok(Part::Text(part.required_text("text")?.to_owned()))
        }
        "refusal" => Ok(Part::Text(part.required_text("refusal")?.to_owned())),
        "image_url" | "input_image" | "image" => {
            media.push(source(part, &["image_url", "image"], MediaKind::Image)?);
            Ok(Part::Image)
        }
        "video_url" | "input_video" | "video" => {
            media.push(source(part, &["video_url", "video"], MediaKind::Video)?);
            Ok(Part::Video)
        }
        _ => part.error(
            "type",
            format!(
                "unsupported content part type `{kind}`, expected text, image_url or video_url"
            ),
        ),
    }
}

/// Where a picture or video is: the field itself, or its member `url`.
fn source(part: &Fields<'_>, keys: &[&str], kind: MediaKind) -> Result<Media, RequestError> {
    for key in keys {
        let (url, path) = match part.value(key) {
            None => continue,
            Some(Json::String(url)) => (url.clone(), part.path(key)),
            Some(value) => {
                let inner = Fields::of(value, part.path(key))?;
                (inner.required_text("url")?.to_owned(), inner.path("url"))
            }
        };
        return Ok(Media { kind, url, path });
    }
    part.error(keys[0], "is missing, expected an object with the member `url`")
}

fn calls(message: &Fields<'_>) -> Result<Vec<ToolCall>, RequestError> {
    let mut calls = Vec::new();
    for (i, value) in message.list("tool_calls")?.unwrap_or_default().iter().enumerate() {
        let outer = Fields::of(value, message.path(&format!("tool_calls[{i}]")))?;
        let Some(function) = outer.object("function")? else {
            return outer.error("function", "is missing, expected an object");
        };
        calls.push(call(outer.text("id")?.unwrap_or_default(), &function)?);
    }
    if let Some(function) = message.object("function_call")? {
        if !calls.is_empty() {
            return message.error("function_call", "stands beside `tool_calls`; send one of them");
        }
        calls.push(call("", &function)?);
    }
    Ok(calls)
}

fn call(id: &str, function: &Fields<'_>) -> Result<ToolCall, RequestError> {
    let name = function.required_text("name")?;
    if name.is_empty() {
        return function.error("name", "is empty, expected the name of a tool");
    }
    check_spelled_name(function, "name", name)?;
    Ok(ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments(function)? })
}

/// The arguments as the JSON text of an object. Clients send objects, JSON text, or nothing for a
/// call without arguments.
fn arguments(function: &Fields<'_>) -> Result<String, RequestError> {
    let value = match function.value("arguments") {
        None => return Ok("{}".to_owned()),
        Some(Json::String(text)) if text.trim().is_empty() => return Ok("{}".to_owned()),
        Some(Json::String(text)) => match Json::parse(text) {
            Ok(Json::Null) => return Ok("{}".to_owned()),
            Ok(value) => value,
            Err(e) => {
                let message = format!("tool call arguments are not valid JSON: {e}");
                return function.error("arguments", message);
            }
        },
        Some(value) => value.clone(),
    };
    match value {
        Json::Object(ref members) => {
            for (key, _) in members {
                if key.is_empty() || key.contains(['"', '\n', '<']) {
                    let message = format!("the argument name {key:?} cannot be written in a call");
                    return function.error("arguments", message);
                }
            }
            Ok(value.to_compact())
        }
        other => function.error(
            "arguments",
            format!("tool call arguments are {}, expected an object", other.kind()),
        ),
    }
}

/// A name in the history must not break the header it is written into; anything else that the model
/// may have made up is allowed.
fn check_spelled_name(fields: &Fields<'_>, key: &str, name: &str) -> Result<(), RequestError> {
    let breaks =
        |character: char| character.is_whitespace() || matches!(character, '"' | '<' | '>');
    if name.contains(breaks) {
        return fields.error(key, format!("{name:?} holds white space, quotes or angle brackets"));
    }
    Ok(())
}
