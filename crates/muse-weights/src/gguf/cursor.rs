//! Reading a GGUF header front to back, never past its end.

use std::fmt::Display;
use std::ops::Range;

use crate::error::{Error, Result, shown};
use crate::folder::SourceFile;

/// A position in a file. Reads name the `place` they are for.
pub(super) struct Cursor<'a> {
    file: &'a SourceFile,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(file: &'a SourceFile, at: usize) -> Self {
        Self { file, at }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    fn left(&self) -> usize {
        self.file.bytes.len() - self.at
    }

    /// The next `length` bytes.
    fn take(&mut self, length: usize, place: &str) -> Result<&'a [u8]> {
        if length > self.left() {
            let found = format!("{} bytes up to the end of the file", self.left());
            return Err(self.wrong(place, found, format!("{length}; is the file complete?")));
        }
        let bytes = &self.file.bytes[self.at..][..length];
        self.at += length;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self, place: &str) -> Result<[u8; N]> {
        let bytes = self.take(N, place)?;
        Ok(bytes.try_into().expect("take gives what was asked"))
    }

    pub(super) fn u32(&mut self, place: &str) -> Result<u32> {
        self.array(place).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, place: &str) -> Result<u64> {
        self.array(place).map(u64::from_le_bytes)
    }

    /// The next `length` bytes, at most eight, with zeros behind.
    pub(super) fn scalar(&mut self, length: usize, place: &str) -> Result<[u8; 8]> {
        let mut wide = [0; 8];
        wide[..length].copy_from_slice(self.take(length, place)?);
        Ok(wide)
    }

    /// A count of items of at least `item_bytes` each: no more than the rest of the file holds.
    pub(super) fn count(&mut self, item_bytes: usize, place: &str) -> Result<usize> {
        let count = self.u64(place)?;
        let most = self.left() / item_bytes;
        if count > most as u64 {
            let found = format!("a count of {count}");
            let expected =
                format!("at most {most}, what the rest of the file can hold; is it complete?");
            return Err(self.wrong(place, found, expected));
        }
        Ok(count as usize)
    }

    /// Skips `count` items of `item_bytes` each.
    pub(super) fn skip(
        &mut self,
        count: usize,
        item_bytes: usize,
        place: &str,
    ) -> Result<Range<usize>> {
        let start = self.at;
        self.take(count.saturating_mul(item_bytes), place)?;
        Ok(start..self.at)
    }

    /// The bytes of a text.
    pub(super) fn text_bytes(&mut self, place: &str) -> Result<Range<usize>> {
        let length = self.count(1, place)?;
        self.skip(length, 1, place)
    }

    /// A text.
    pub(super) fn text(&mut self, place: &str) -> Result<&'a str> {
        let range = self.text_bytes(place)?;
        std::str::from_utf8(&self.file.bytes[range])
            .map_err(|error| self.wrong(place, error, "UTF-8"))
    }

    pub(super) fn wrong(&self, place: &str, found: impl Display, expected: impl Display) -> Error {
        Error::Malformed {
            file: self.file.name.clone(),
            place: shown(place),
            found: found.to_string(),
            expected: expected.to_string(),
        }
    }
}
