//! Errors of a request, with the path of the field.

use std::fmt;

/// The most characters of an error's path, and of its message.
const MAX_ERROR_CHARACTERS: usize = 400;

/// What is wrong with a request, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError {
    /// The field, like `messages[2].content[0].type`; empty for the whole body.
    pub path: String,
    /// What was found, what was expected.
    pub message: String,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.message),
            path => write!(f, "{path}: {}", self.message),
        }
    }
}

impl std::error::Error for RequestError {}

impl RequestError {
    /// Shortens what the client sent: an error need not return kilobytes of it.
    pub(super) fn clipped(self) -> Self {
        let clip = |text: String| match text.char_indices().nth(MAX_ERROR_CHARACTERS) {
            Some((at, _)) => format!("{}…", &text[..at]),
            None => text,
        };
        Self { path: clip(self.path), message: clip(self.message) }
    }
}

impl From<RequestError> for muse_core::Error {
    fn from(error: RequestError) -> Self {
        Self::Invalid(error.to_string())
    }
}
