//! The crate's error: why a checkpoint was refused, in enough detail to mend it.

use std::fmt;
use std::sync::Arc;

/// Why a checkpoint was refused. Every variant names the file and where in it, what was found and
/// what was expected.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to read the file.
    Read {
        /// The file.
        file: String,
        /// The system's error.
        source: Arc<std::io::Error>,
    },
    /// The operating system refused to write the file.
    Write {
        /// The file.
        file: String,
        /// The system's error.
        source: Arc<std::io::Error>,
    },
    /// The path is neither a HuggingFace folder nor a GGUF file, or a file of it is missing.
    NotACheckpoint {
        /// The path.
        path: String,
        /// What is there.
        found: String,
        /// What should be there.
        expected: String,
    },
    /// The container breaks its format: lengths, offsets or counts are wrong.
    Malformed {
        /// The file.
        file: String,
        /// Where in the file.
        location: String,
        /// What is there.
        found: String,
        /// What should be there.
        expected: String,
    },
    /// A setting is missing, of the wrong type or out of range.
    Key {
        /// The file.
        file: String,
        /// The setting, as the file spells it.
        key: String,
        /// What is there.
        found: String,
        /// What should be there.
        expected: String,
    },
    /// A tensor is missing, unexpected, of the wrong shape or at the wrong offset.
    Tensor {
        /// The file.
        file: String,
        /// The tensor, as the file spells it.
        tensor: String,
        /// What is there.
        found: String,
        /// What should be there.
        expected: String,
    },
    /// The file is sound, but of another model or of a variant this build does not run.
    Variant {
        /// The file.
        file: String,
        /// The setting that differs.
        key: String,
        /// Its value.
        found: String,
        /// The value this build runs.
        expected: String,
    },
    /// The file is sound, but a tensor is stored in a format this build does not read.
    Format {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// Name of the format.
        format: String,
        /// Which program reads the format, and what to do.
        advice: String,
    },
}

impl Error {
    pub(crate) fn read(file: &str, source: std::io::Error) -> Self {
        Self::Read { file: file.to_owned(), source: Arc::new(source) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { file, source } => {
                write!(f, "{file}: cannot be read: {source}")?;
                match remark(file).filter(|_| source.kind() == std::io::ErrorKind::NotFound) {
                    Some(remark) => write!(f, "; {remark}"),
                    None => Ok(()),
                }
            }
            Self::Write { file, source } => write!(f, "{file}: cannot be written: {source}"),
            Self::NotACheckpoint { path, found, expected } => {
                write!(f, "{path}: found {found}, expected {expected}")
            }
            Self::Malformed { file, location, found, expected } => {
                write!(f, "{file}: {location}: found {found}, expected {expected}")
            }
            Self::Key { file, key, found, expected }
            | Self::Variant { file, key, found, expected } => {
                write!(f, "{file}: key `{key}`: found {found}, expected {expected}")
            }
            Self::Tensor { file, tensor, found, expected } => {
                write!(f, "{file}: tensor `{tensor}`: found {found}, expected {expected}")
            }
            Self::Format { file, tensor, format, advice } => {
                write!(f, "{file}: tensor `{tensor}` is stored as {format}: {advice}")
            }
        }
    }
}

/// What a path that does not exist was probably meant to be.
fn remark(path: &str) -> Option<&'static str> {
    // `owner/name` is how a model is named on HuggingFace.
    let mut parts = path.split('/');
    let is_repository = match (parts.next(), parts.next(), parts.next()) {
        (Some(owner), Some(name), None) => {
            !owner.is_empty() && !name.is_empty() && !std::path::Path::new(owner).exists()
        }
        _ => false,
    };
    if path.starts_with('~') {
        Some("a shell replaces ~ only where a word begins with it: write the whole path")
    } else if path.contains("://") || is_repository {
        Some("nothing is downloaded: fetch the checkpoint, then name its folder or file")
    } else {
        None
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { source, .. } | Self::Write { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}

impl From<Error> for muse_core::Error {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::Read { .. } | Error::Write { .. } | Error::NotACheckpoint { .. } => {
                Self::Invalid(message)
            }
            Error::Variant { .. } | Error::Format { .. } => Self::Unsupported(message),
            Error::Malformed { .. } | Error::Key { .. } | Error::Tensor { .. } => {
                Self::Corrupt(message)
            }
        }
    }
}

/// A result with this crate's error.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// A string of a file, fit for a message: control characters escaped, cut at 80 characters.
pub(crate) fn escaped(text: &str) -> String {
    const MAX_CHARS: usize = 80;
    let mut out: String = text.chars().take(MAX_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_none_of_this_machine_is_remarked_on() {
        let text =
            |path: &str, kind: std::io::ErrorKind| Error::read(path, kind.into()).to_string();
        let missing = |path| text(path, std::io::ErrorKind::NotFound);
        for (path, words) in [
            ("facebook/Muse-Glimmer-30B", "nothing is downloaded"),
            ("https://example.com/model.gguf", "nothing is downloaded"),
            ("~/models/muse", "whole path"),
        ] {
            assert!(missing(path).contains(words), "{}", missing(path));
            let denied = text(path, std::io::ErrorKind::PermissionDenied);
            assert!(!denied.contains(words), "{denied}");
        }
        for plain in ["model.gguf", "./model.gguf", "src/model.gguf", "/models/muse", "a/b/c"] {
            assert!(!missing(plain).contains(';'), "{}", missing(plain));
        }
    }
}
