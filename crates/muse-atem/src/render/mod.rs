//! Conversation to prompt, byte for byte as the published chat template writes it.

mod history;
mod system;

pub(crate) use history::arguments;
pub(crate) use system::namespace;

use muse_core::contract::{Conversation, Message, Part, PromptPart};
use muse_core::{Error, Result};

use crate::mark::{BEGIN_OF_TEXT, Mark};

/// The prompt of a conversation, ending where the assistant is to speak.
///
/// Words are written as they are: that names, recipients, the strength of reasoning and dates make
/// sense, and that ids of calls are each its own, is for whoever reads a request to check.
/// [`crate::request::ChatRequest`] does, for other readers there are
/// [`crate::request::check_tool_name`] and [`crate::request::check_calls`].
///
/// # Errors
/// [`muse_core::Error::Invalid`] when arguments of a call or parameters of a tool are not JSON of
/// the right shape, and when a picture has no place; the message names the turn or the tool.
pub fn render(conversation: &Conversation) -> Result<Vec<PromptPart>> {
    let mut prompt = write_turns(conversation)?;
    check_media(conversation, &prompt.pieces)?;
    prompt.mark(Mark::Start);
    prompt.text("assistant");
    for piece in &conversation.answer_prefix {
        match piece {
            PromptPart::Text(text) => prompt.text(text),
            piece => prompt.pieces.push(piece.clone()),
        }
    }
    Ok(prompt.pieces)
}

/// The turns so far, without the header that asks the assistant to speak.
///
/// # Errors
/// As [`render`].
pub fn render_history(conversation: &Conversation) -> Result<Vec<PromptPart>> {
    Ok(write_turns(conversation)?.pieces)
}

/// A prompt as one text for an engine that takes text and reads marks in it, with media as their
/// placeholders.
///
/// # Errors
/// [`Error::Invalid`] when the conversation itself spells a mark: the engine would take it for the
/// end of a turn and the beginning of another one, whoever wrote it.
pub fn to_text(pieces: &[PromptPart]) -> Result<String> {
    for piece in pieces {
        if let PromptPart::Text(text) = piece
            && let Some(mark) = spelled_mark(text)
        {
            return Err(Error::Invalid(format!(
                "a text of the conversation spells the mark {mark:?}, which an engine that takes \
                 text would obey; take it out, or send token ids, in which it stays text"
            )));
        }
    }
    Ok(spell(pieces))
}

/// What a text holds that has the spelling of a special token, like `<|eot|>`.
fn spelled_mark(text: &str) -> Option<&str> {
    text.match_indices("<|").find_map(|(at, _)| {
        let name = &text[at + 2..];
        let letters = name.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        let whole = letters > 0 && name[letters..].starts_with("|>");
        whole.then(|| &text[at..at + 2 + letters + 2])
    })
}

/// A prompt as one text, marks spelled and media as their placeholders: for people and logs. Not
/// for an engine, where text that spells a mark would be one: see [`to_text`].
pub fn spell(pieces: &[PromptPart]) -> String {
    let mut out = String::new();
    for piece in pieces {
        out.push_str(match piece {
            PromptPart::Text(text) => text,
            PromptPart::Special(mark) => mark,
            PromptPart::Image(_) => "<|patch|>",
            PromptPart::Video(_) => "<|video|>",
        });
    }
    out
}

fn write_turns(conversation: &Conversation) -> Result<Prompt> {
    let mut prompt = Prompt::default();
    prompt.pieces.push(PromptPart::Special(BEGIN_OF_TEXT));
    let ending = system::Ending::new(conversation)?;
    if !conversation.messages.iter().any(|turn| matches!(turn, Message::System(_))) {
        ending.write_default(conversation, &mut prompt);
    }
    history::write(&conversation.messages, &ending, &mut prompt)?;
    Ok(prompt)
}

/// Every picture and video has its place in the prompt, or what was sent would be lost and those
/// behind it be taken for others.
pub(crate) fn check_media(conversation: &Conversation, pieces: &[PromptPart]) -> Result<()> {
    let parts = || {
        conversation.messages.iter().flat_map(|turn| match turn {
            Message::System(content) | Message::User(content) => content,
            Message::Assistant { content, .. } | Message::Tool { content, .. } => content,
        })
    };
    let sent = |kind: Part| parts().filter(|part| **part == kind).count();
    let placed = |what: fn(&PromptPart) -> bool| pieces.iter().filter(|piece| what(piece)).count();
    for (name, sent, placed) in [
        ("pictures", sent(Part::Image), placed(|piece| matches!(piece, PromptPart::Image(_)))),
        ("videos", sent(Part::Video), placed(|piece| matches!(piece, PromptPart::Video(_)))),
    ] {
        if sent != placed {
            return Err(Error::Invalid(format!(
                "the conversation has {sent} {name}, the chat template placed {placed}; beside \
                 tool calls there is no place for them"
            )));
        }
    }
    Ok(())
}

/// Pieces under construction; neighbouring texts are one, as the tokenizer sees them.
#[derive(Default)]
struct Prompt {
    pieces: Vec<PromptPart>,
    images: usize,
    videos: usize,
}

impl Prompt {
    fn text(&mut self, text: &str) {
        match self.pieces.last_mut() {
            Some(PromptPart::Text(last)) => last.push_str(text),
            _ if text.is_empty() => {}
            _ => self.pieces.push(PromptPart::Text(text.to_owned())),
        }
    }

    fn mark(&mut self, mark: Mark) {
        self.pieces.push(PromptPart::Special(mark.text()));
    }

    /// `<|start|>ROLE<|message|>`
    fn header(&mut self, role: &str) {
        self.mark(Mark::Start);
        self.text(role);
        self.mark(Mark::Message);
    }

    /// `<|start|>assistant to=NAME<|message|>`
    fn assistant(&mut self, recipient: &str) {
        self.header(&format!("assistant to={recipient}"));
    }

    fn content(&mut self, parts: &[Part]) {
        for part in parts {
            match part {
                Part::Text(text) => self.text(text),
                Part::Image => {
                    self.pieces.push(PromptPart::Image(self.images));
                    self.images += 1;
                }
                Part::Video => {
                    self.pieces.push(PromptPart::Video(self.videos));
                    self.videos += 1;
                }
            }
        }
    }
}
