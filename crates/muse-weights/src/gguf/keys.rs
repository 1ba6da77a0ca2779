//! Settings of a GGUF file by key.

use super::header::{Header, Value, kind, scalar, scalar_bytes};
use crate::error::{Error, Result, shown};
use crate::folder::SourceFile;
use crate::settings::Settings;

/// The keys of a file under a prefix.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'a> {
    pub(super) file: &'a SourceFile,
    pub(super) header: &'a Header,
    /// The architecture with a dot, or empty for keys given in full.
    pub(super) prefix: &'a str,
}

impl<'a> Keys<'a> {
    /// The same keys under another prefix.
    pub(crate) fn under(self, prefix: &'a str) -> Self {
        Self { prefix, ..self }
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    pub(super) fn value(&self, key: &str) -> Option<&'a Value> {
        if self.prefix.is_empty() {
            return self.header.keys.get(key);
        }
        self.header.keys.get(&format!("{}{key}", self.prefix))
    }

    /// The numbers of a list, each whole and not negative; bools count as 0 and 1.
    pub(super) fn integers(&self, key: &str) -> Result<Option<Vec<u64>>> {
        const EXPECTED: &str = "a list of whole numbers that are not negative";
        let Some(value) = self.value(key) else { return Ok(None) };
        let wrong = || self.mistyped(key, value, EXPECTED);
        let Value::List { kind, range, .. } = value else { return Err(wrong()) };
        let size = scalar_bytes(*kind).ok_or_else(wrong)?;
        let item = |bytes: &[u8]| {
            let mut wide = [0; 8];
            wide[..size].copy_from_slice(bytes);
            match scalar(*kind, wide) {
                Some(Value::Unsigned(n)) => Ok(n),
                Some(Value::Signed(n)) if n >= 0 => Ok(n as u64),
                Some(Value::Flag(flag)) => Ok(flag.into()),
                Some(Value::Signed(n)) => {
                    Err(self.wrong(key, format!("{n} in the list"), EXPECTED))
                }
                _ => Err(wrong()),
            }
        };
        self.file.bytes[range.clone()].chunks_exact(size).map(item).collect::<Result<_>>().map(Some)
    }

    /// The numbers of a list.
    pub(super) fn floats(&self, key: &str) -> Result<Option<Vec<f32>>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::List { kind: kind::F32, range, .. }) => {
                let words = self.file.bytes[range.clone()].as_chunks::<4>().0;
                Ok(Some(words.iter().map(|word| f32::from_le_bytes(*word)).collect()))
            }
            Some(value) => Err(self.mistyped(key, value, "a list of f32")),
        }
    }

    /// The texts of a list, as bytes: their number is known, that they are UTF-8 is not.
    pub(crate) fn texts(&self, key: &str) -> Result<Option<Texts<'a>>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::List { kind: kind::TEXT, count, range }) => {
                Ok(Some(Texts { bytes: &self.file.bytes[range.clone()], left: *count }))
            }
            Some(value) => Err(self.mistyped(key, value, "a list of texts")),
        }
    }

    fn mistyped(&self, key: &str, value: &Value, expected: &str) -> Error {
        self.wrong(key, brief(value, self.file), expected)
    }
}

/// Texts of a list in the file, whose bounds were checked when the header was read.
pub(crate) struct Texts<'a> {
    bytes: &'a [u8],
    left: usize,
}

impl<'a> Iterator for Texts<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let (length, rest) = self.bytes.split_first_chunk::<8>()?;
        let (text, rest) = rest.split_at(u64::from_le_bytes(*length) as usize);
        self.bytes = rest;
        Some(text)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Texts<'_> {}

impl Settings for Keys<'_> {
    fn locate(&self, key: &str) -> (String, String) {
        (self.file.name.clone(), format!("{}{key}", self.prefix))
    }

    fn integer(&self, key: &str) -> Result<Option<u64>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Unsigned(n)) => Ok(Some(*n)),
            Some(Value::Signed(n)) if *n >= 0 => Ok(Some(*n as u64)),
            Some(value) => Err(self.mistyped(key, value, "a whole number that is not negative")),
        }
    }

    fn number(&self, key: &str) -> Result<Option<f64>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Unsigned(n)) => Ok(Some(*n as f64)),
            Some(Value::Signed(n)) => Ok(Some(*n as f64)),
            Some(Value::Float(n)) => Ok(Some(*n)),
            Some(value) => Err(self.mistyped(key, value, "a number")),
        }
    }

    fn text(&self, key: &str) -> Result<Option<String>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Text(range)) => {
                let text = std::str::from_utf8(&self.file.bytes[range.clone()]);
                Ok(Some(text.expect("checked when the header was read").to_owned()))
            }
            Some(value) => Err(self.mistyped(key, value, "a text")),
        }
    }

    fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Flag(flag)) => Ok(Some(*flag)),
            Some(value) => Err(self.mistyped(key, value, "a bool")),
        }
    }
}

/// A value as messages show it.
pub(super) fn brief(value: &Value, file: &SourceFile) -> String {
    match value {
        Value::Unsigned(n) => n.to_string(),
        Value::Signed(n) => n.to_string(),
        Value::Float(n) => n.to_string(),
        Value::Flag(flag) => flag.to_string(),
        Value::Text(range) => {
            format!("the text `{}`", shown(&String::from_utf8_lossy(&file.bytes[range.clone()])))
        }
        Value::List { count, .. } => format!("a list of {count}"),
    }
}
