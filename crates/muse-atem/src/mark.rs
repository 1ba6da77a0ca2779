//! The marks that are structure. In a prompt and in token ids they are single tokens; in text from
//! other engines they are letters.

/// A mark that frames messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mark {
    /// Begins a header.
    Start,
    /// Ends a header, begins a body.
    Message,
    /// Ends a message; the turn goes on.
    EndOfMessage,
    /// Ends the turn.
    EndOfTurn,
    /// Ends the text, and with it the turn.
    EndOfText,
}

impl Mark {
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

    /// Whether the turn ends with it.
    pub const fn ends_turn(self) -> bool {
        matches!(self, Self::EndOfTurn | Self::EndOfText)
    }
}

/// Begins a prompt.
pub(crate) const BEGIN_OF_TEXT: &str = "<|begin_of_text|>";
