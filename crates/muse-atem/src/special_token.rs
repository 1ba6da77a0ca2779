//! The special tokens that structure messages. In prompts and token ids each is one token; in the
//! text of other engines they are spelled out.

use muse_core::contract::{Token, Tokenizer};
use muse_core::{Error, Result};

/// A special token that frames messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpecialToken {
    /// Begins a header.
    Start,
    /// Ends a header and begins the message's text.
    Message,
    /// Ends a message; the assistant continues with another one.
    EndOfMessage,
    /// Ends the turn.
    EndOfTurn,
    /// Ends the text, and with it the turn.
    EndOfText,
}

impl SpecialToken {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Start, Self::Message, Self::EndOfMessage, Self::EndOfTurn, Self::EndOfText];

    /// Its spelling.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Start => "<|start|>",
            Self::Message => "<|message|>",
            Self::EndOfMessage => "<|eom|>",
            Self::EndOfTurn => "<|eot|>",
            Self::EndOfText => "<|end_of_text|>",
        }
    }

    /// Its id.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the vocabulary lacks it.
    pub fn id(self, tokenizer: &dyn Tokenizer) -> Result<Token> {
        special_token_id(self.text(), tokenizer)
    }

    /// Whether it ends the turn.
    pub const fn ends_turn(self) -> bool {
        matches!(self, Self::EndOfTurn | Self::EndOfText)
    }
}

/// Begins a prompt.
pub(crate) const BEGIN_OF_TEXT: &str = "<|begin_of_text|>";

/// The id of any special token, by its spelling.
pub(crate) fn special_token_id(spelling: &str, tokenizer: &dyn Tokenizer) -> Result<Token> {
    tokenizer.special_token(spelling).ok_or_else(|| {
        Error::Corrupt(format!(
            "the vocabulary has no token {spelling}: it is not that of a Muse-Glimmer checkpoint"
        ))
    })
}
