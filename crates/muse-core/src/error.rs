//! The error of the contracts: its variants say who must act, its messages what to do.

use std::fmt;
use std::sync::Arc;

/// An error, by who must act. Deadline and cancellation are finish reasons, not errors.
///
/// Every message says what was found, what was expected and what to do about it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The caller is wrong: fix the request.
    Invalid(String),
    /// A limit is reached for now: retry later.
    Exhausted(String),
    /// This build or this model cannot do it: use another.
    Unsupported(String),
    /// A file is damaged or contradicts itself: refuse to start.
    Corrupt(String),
    /// Hardware or driver failed: the engine stops and the process exits.
    Device {
        /// What was being done.
        doing: String,
        /// The driver's error.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}

/// `std::result::Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(message)
            | Self::Exhausted(message)
            | Self::Unsupported(message)
            | Self::Corrupt(message) => f.write_str(message),
            Self::Device { doing, source } => write!(f, "{doing}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Device { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}
