//! Conversation to prompt, byte for byte as the published chat template renders it.

mod history;
mod prompt;
mod system;

pub(crate) use history::arguments;
pub(crate) use system::namespace;

use muse_core::contract::{Conversation, Message, Part, PromptPart};
use muse_core::{Error, Result};

use crate::special_token::{BEGIN_OF_TEXT, SpecialToken};
use prompt::PromptBuilder;

/// The prompt of a conversation, ending where the assistant's answer begins, or before its header
/// when the conversation omits that.
///
/// Names, recipients, the reasoning strength, dates and call ids are written as they are; they are
/// checked where a request is read: by [`crate::request::ChatRequest`], or with
/// [`crate::request::check_tool_name`] and [`crate::request::resolve_calls`].
///
/// # Errors
/// [`muse_core::Error::Invalid`] when the arguments of a call or the parameters of a tool are not
/// JSON of the right type, and when a picture is not rendered; it names the message or the tool.
pub fn render(conversation: &Conversation) -> Result<Vec<PromptPart>> {
    let mut prompt = write_messages(conversation)?;
    check_media(conversation, &prompt.parts)?;
    if conversation.omit_generation_prompt {
        return Ok(prompt.parts);
    }
    prompt.special(SpecialToken::Start);
    prompt.text("assistant");
    for part in &conversation.answer_prefix {
        match part {
            PromptPart::Text(text) => prompt.text(text),
            part => prompt.parts.push(part.clone()),
        }
    }
    Ok(prompt.parts)
}

/// The messages so far, without the header of the next answer.
///
/// # Errors
/// As [`render`].
pub fn render_history(conversation: &Conversation) -> Result<Vec<PromptPart>> {
    Ok(write_messages(conversation)?.parts)
}

/// A prompt as one text, with media as placeholders, for an engine that reads special tokens in
/// text.
///
/// # Errors
/// [`Error::Invalid`] when a message spells a special token: the engine would take it for the end
/// of that message and the beginning of another.
pub fn to_text(parts: &[PromptPart]) -> Result<String> {
    for part in parts {
        if let PromptPart::Text(text) = part
            && let Some(special) = find_special_token(text)
        {
            return Err(Error::Invalid(format!(
                "a text of the conversation spells the special token {special:?}, which an engine \
                 that takes text would obey; take it out, or send token ids, in which it stays text"
            )));
        }
    }
    Ok(spell(parts))
}

/// The spelling of a special token in a text, like `<|eot|>`.
fn find_special_token(text: &str) -> Option<&str> {
    text.match_indices("<|").find_map(|(at, _)| {
        let name = &text[at + 2..];
        let characters =
            name.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        let is_complete = characters > 0 && name[characters..].starts_with("|>");
        is_complete.then(|| &text[at..at + 2 + characters + 2])
    })
}

/// A prompt as one text, special tokens spelled and media as placeholders: for people and logs. For
/// an engine, use [`to_text`], which refuses texts that spell special tokens.
pub fn spell(parts: &[PromptPart]) -> String {
    let mut out = String::new();
    for part in parts {
        out.push_str(match part {
            PromptPart::Text(text) => text,
            PromptPart::Special(spelling) => spelling,
            PromptPart::Image(_) => "<|patch|>",
            PromptPart::Video(_) => "<|video|>",
        });
    }
    out
}

fn write_messages(conversation: &Conversation) -> Result<PromptBuilder> {
    let mut prompt = PromptBuilder::default();
    prompt.parts.push(PromptPart::Special(BEGIN_OF_TEXT));
    let suffix = system::SystemSuffix::new(conversation)?;
    if !conversation.messages.iter().any(|message| matches!(message, Message::System(_))) {
        suffix.write_default(conversation, &mut prompt);
    }
    history::write(&conversation.messages, &suffix, &mut prompt)?;
    Ok(prompt)
}

/// Checks that every picture and video is in the prompt: a lost one would shift those after it.
pub(crate) fn check_media(conversation: &Conversation, parts: &[PromptPart]) -> Result<()> {
    let content_parts = || {
        conversation.messages.iter().flat_map(|message| match message {
            Message::System(content) | Message::User(content) => content,
            Message::Assistant { content, .. } | Message::Tool { content, .. } => content,
        })
    };
    let sent = |kind: Part| content_parts().filter(|part| **part == kind).count();
    let rendered = |what: fn(&PromptPart) -> bool| parts.iter().filter(|part| what(part)).count();
    for (name, sent, rendered) in [
        ("pictures", sent(Part::Image), rendered(|part| matches!(part, PromptPart::Image(_)))),
        ("videos", sent(Part::Video), rendered(|part| matches!(part, PromptPart::Video(_)))),
    ] {
        if sent != rendered {
            return Err(Error::Invalid(format!(
                "the conversation has {sent} {name}, the chat template rendered {rendered}; beside \
                 tool calls there is no place for them"
            )));
        }
    }
    Ok(())
}
