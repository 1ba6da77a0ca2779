//! Typed access to the keys of a GGUF file, as [`Settings`].

use super::header::{Header, Value, scalar, scalar_bytes, value_type};
use crate::error::{Error, Result};
use crate::folder::SourceFile;
use crate::settings::Settings;

/// The keys of a file under a prefix.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'a> {
    pub(super) file: &'a SourceFile,
    pub(super) header: &'a Header,
    /// Architecture and dot, or empty when keys are given in full.
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

    /// An array of integers that are not negative; bools count as 0 and 1.
    pub(super) fn integers(&self, key: &str) -> Result<Option<Vec<u64>>> {
        const EXPECTED: &str = "an array of integers that are not negative";
        let Some(value) = self.value(key) else { return Ok(None) };
        let wrong = || self.mistyped(key, value, EXPECTED);
        let Value::Array { item_type, range, .. } = value else { return Err(wrong()) };
        let size = scalar_bytes(*item_type).ok_or_else(wrong)?;
        let item = |bytes: &[u8]| {
            let mut wide = [0; 8];
            wide[..size].copy_from_slice(bytes);
            match scalar(*item_type, wide) {
                Value::Unsigned(n) => Ok(n),
                Value::Signed(n) if n >= 0 => Ok(n as u64),
                Value::Bool(flag) => Ok(flag.into()),
                Value::Signed(n) => Err(self.wrong(key, format!("{n} in the array"), EXPECTED)),
                _ => Err(wrong()),
            }
        };
        self.file.bytes[range.clone()].chunks_exact(size).map(item).collect::<Result<_>>().map(Some)
    }

    /// An array of f32.
    pub(super) fn floats(&self, key: &str) -> Result<Option<Vec<f32>>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Array { item_type: value_type::F32, range, .. }) => {
                let words = self.file.bytes[range.clone()].as_chunks::<4>().0;
                Ok(Some(words.iter().map(|word| f32::from_le_bytes(*word)).collect()))
            }
            Some(value) => Err(self.mistyped(key, value, "an array of f32")),
        }
    }

    /// An array of strings, as bytes: whether they are UTF-8 is not checked.
    pub(crate) fn strings(&self, key: &str) -> Result<Option<Strings<'a>>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Array { item_type: value_type::STRING, count, range }) => {
                Ok(Some(Strings { bytes: &self.file.bytes[range.clone()], left: *count }))
            }
            Some(value) => Err(self.mistyped(key, value, "an array of strings")),
        }
    }

    fn mistyped(&self, key: &str, value: &Value, expected: &str) -> Error {
        self.wrong(key, value.describe(self.file), expected)
    }
}

/// Strings of an array in the file, whose bounds were checked when the header was read.
pub(crate) struct Strings<'a> {
    bytes: &'a [u8],
    left: usize,
}

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let (length, rest) = self.bytes.split_first_chunk::<8>()?;
        let (string, rest) = rest.split_at(u64::from_le_bytes(*length) as usize);
        self.bytes = rest;
        Some(string)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Strings<'_> {}

impl Settings for Keys<'_> {
    fn locate(&self, key: &str) -> (String, String) {
        (self.file.name.clone(), format!("{}{key}", self.prefix))
    }

    fn integer(&self, key: &str) -> Result<Option<u64>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Unsigned(n)) => Ok(Some(*n)),
            Some(Value::Signed(n)) if *n >= 0 => Ok(Some(*n as u64)),
            Some(value) => Err(self.mistyped(key, value, "an integer that is not negative")),
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

    fn string(&self, key: &str) -> Result<Option<String>> {
        match self.value(key) {
            None => Ok(None),
            Some(value @ Value::String(range)) => {
                let string = str::from_utf8(&self.file.bytes[range.clone()]);
                match string {
                    Ok(string) => Ok(Some(string.to_owned())),
                    Err(_) => Err(self.mistyped(key, value, "a string in UTF-8")),
                }
            }
            Some(value) => Err(self.mistyped(key, value, "a string")),
        }
    }

    fn boolean(&self, key: &str) -> Result<Option<bool>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(value) => Err(self.mistyped(key, value, "a bool")),
        }
    }
}
