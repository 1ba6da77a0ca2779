//! Why the server does not answer, or stops answering, by who must act.

use std::fmt;

use muse_core::Error;

/// Why a request is refused or ends without an answer. `status` maps it to each protocol.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// A field is wrong; the message says what was found, what fits and what to do.
    Field {
        /// The setting's name, as [`super::Settings`] and [`super::Ask`] spell it.
        field: String,
        /// What is wrong with it.
        message: String,
    },
    /// The prompt leaves no room for an answer.
    TooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Positions a sequence may have.
        room: u32,
    },
    /// A text that leaves no room for an answer however it is read.
    TooMuchText {
        /// Bytes of the text.
        bytes: usize,
        /// Positions a sequence may have.
        room: u32,
    },
    /// Another model is served.
    UnknownModel {
        /// What was asked for.
        asked: String,
        /// What is there.
        served: String,
    },
    /// The model has no vocabulary: it reads and writes token ids only.
    NoText,
    /// The server is about to stop.
    Draining,
    /// The server stopped before the answer was complete.
    Stopped,
    /// The client read too slowly.
    SlowClient,
    /// The client's deadline passed.
    Deadline,
    /// What the engine or the template says.
    Core(Error),
}

impl Refusal {
    /// A field that is wrong.
    pub fn field(field: &str, message: impl Into<String>) -> Self {
        Self::Field { field: field.to_owned(), message: message.into() }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Core(error)
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field { field, message } => write!(f, "{field}: {message}"),
            Self::TooLong { prompt, room } => write!(
                f,
                "the prompt has {prompt} tokens and the model has room for {room}, of which the \
                 answer needs at least one; shorten the conversation"
            ),
            Self::TooMuchText { bytes, room } => write!(
                f,
                "the text has {bytes} bytes, more than the longest tokens could hold in the {room} \
                 the model has room for; send less text"
            ),
            Self::UnknownModel { asked, served } => write!(
                f,
                "model {asked:?} is not served here; ask for {served:?}, or name no model"
            ),
            Self::NoText => f.write_str(
                "the model has no vocabulary and cannot read text; use GenerateService with \
                 token ids, or serve a checkpoint with a tokenizer",
            ),
            Self::Draining => {
                f.write_str("the server is shutting down; send the request to another one")
            }
            Self::Stopped => f.write_str(
                "the server stopped before the answer was complete; send the request again",
            ),
            Self::SlowClient => f.write_str(
                "the client read too slowly and too many events piled up; read faster, or ask \
                 for the whole answer instead of a stream",
            ),
            Self::Deadline => f.write_str(
                "the deadline passed before the answer was complete; allow more time, or lower \
                 max_tokens",
            ),
            Self::Core(error) => error.fmt(f),
        }
    }
}
