//! Why a request is not answered, or its answer ends early, by who must act.

use std::fmt;

use muse_core::Error;

/// Why a request is refused or ends without an answer. `status` maps it to each protocol.
#[derive(Clone, Debug)]
pub enum ServiceError {
    /// A field has a wrong value.
    InvalidField {
        /// The field's name, as [`super::GenerationSettings`] and [`super::ChatJob`] spell it.
        field: String,
        /// What was found, what is expected and what to do.
        message: String,
    },
    /// The prompt leaves no position for an answer.
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Positions a sequence may have.
        max_positions: u32,
    },
    /// A text that leaves no position for an answer however it is tokenized.
    TextTooLong {
        /// Bytes of the text.
        bytes: usize,
        /// Positions a sequence may have.
        max_positions: u32,
    },
    /// Another model is served.
    UnknownModel {
        /// The name in the request.
        requested: String,
        /// The name of the model that is served.
        served: String,
    },
    /// The model has no tokenizer: it takes and gives token ids only.
    NoTokenizer,
    /// The server drains and admits no request.
    Draining,
    /// The server stopped before the answer was complete.
    Stopped,
    /// The client read too slowly.
    SlowClient,
    /// The client's deadline passed.
    DeadlineExceeded,
    /// An error of the engine or the template.
    Core(Error),
}

impl ServiceError {
    /// A field with a wrong value.
    pub fn invalid_field(field: &str, message: impl Into<String>) -> Self {
        Self::InvalidField { field: field.to_owned(), message: message.into() }
    }
}

impl From<Error> for ServiceError {
    fn from(error: Error) -> Self {
        Self::Core(error)
    }
}

impl std::error::Error for ServiceError {}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidField { field, message } => write!(f, "{field}: {message}"),
            Self::PromptTooLong { prompt, max_positions } => write!(
                f,
                "the prompt has {prompt} tokens and the model has room for {max_positions}, of \
                 which the answer needs at least one; shorten the conversation"
            ),
            Self::TextTooLong { bytes, max_positions } => write!(
                f,
                "the text has {bytes} bytes, more than the longest tokens could hold in the \
                 {max_positions} the model has room for; send less text"
            ),
            Self::UnknownModel { requested, served } => write!(
                f,
                "model {requested:?} is not served here; ask for {served:?}, or name no model"
            ),
            Self::NoTokenizer => f.write_str(
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
            Self::DeadlineExceeded => f.write_str(
                "the deadline passed before the answer was complete; allow more time, or lower \
                 max_tokens",
            ),
            Self::Core(error) => error.fmt(f),
        }
    }
}
