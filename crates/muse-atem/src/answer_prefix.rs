//! What a prompt commits of the answer: nothing, the header of a message, or a header with the
//! beginning of its text.

use muse_core::contract::PromptPart;

use crate::special_token::SpecialToken;

/// The last message that a prompt begins for the assistant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnswerPrefix<'a> {
    /// Whom the message is to; none for an untagged answer.
    pub(crate) recipient: Option<&'a str>,
    /// Parts before the text of the message.
    pub(crate) headers: &'a [PromptPart],
    /// The text of the message so far.
    pub(crate) text: &'a [PromptPart],
}

impl<'a> AnswerPrefix<'a> {
    /// None when the model writes the header itself.
    pub(crate) fn of(prefix: &'a [PromptPart]) -> Option<Self> {
        let message = PromptPart::Special(SpecialToken::Message.text());
        let at = prefix.iter().rposition(|part| *part == message)?;
        let (headers, text) = prefix.split_at(at + 1);
        let header = match &headers[..at] {
            [.., PromptPart::Text(header)] => header.as_str(),
            _ => "",
        };
        let recipient = header.strip_prefix("assistant").unwrap_or(header).strip_prefix(" to=");
        Some(Self { recipient, headers, text })
    }

    /// Whether the message is reasoning.
    pub(crate) fn is_reasoning(&self) -> bool {
        self.recipient == Some("self")
    }

    /// Whether the message has text already.
    pub(crate) fn continues(&self) -> bool {
        !self.text.is_empty()
    }
}
