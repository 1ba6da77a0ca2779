//! Reads a GGUF header front to back and never past the end of the file.

use std::fmt::Display;
use std::ops::Range;

use crate::error::{Error, Result, escaped};
use crate::folder::SourceFile;

/// A read position in a file. Every read names the field it is for, which errors show.
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
    fn take(&mut self, length: usize, field: &str) -> Result<&'a [u8]> {
        if length > self.left() {
            let found = format!("{} bytes up to the end of the file", self.left());
            return Err(self.malformed(field, found, format!("{length}; is the file complete?")));
        }
        let bytes = &self.file.bytes[self.at..][..length];
        self.at += length;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self, field: &str) -> Result<[u8; N]> {
        let bytes = self.take(N, field)?;
        Ok(bytes.try_into().expect("`take` returns the asked length"))
    }

    pub(super) fn u32(&mut self, field: &str) -> Result<u32> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, field: &str) -> Result<u64> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// The next `length` bytes, at most eight, with zeros behind.
    pub(super) fn scalar(&mut self, length: usize, field: &str) -> Result<[u8; 8]> {
        let mut wide = [0; 8];
        wide[..length].copy_from_slice(self.take(length, field)?);
        Ok(wide)
    }

    /// A count of items of at least `item_bytes` each: no more than the rest of the file holds.
    pub(super) fn count(&mut self, item_bytes: usize, field: &str) -> Result<usize> {
        let count = self.u64(field)?;
        let max = self.left() / item_bytes;
        if count > max as u64 {
            let found = format!("a count of {count}");
            let expected =
                format!("at most {max}, what the rest of the file can hold; is it complete?");
            return Err(self.malformed(field, found, expected));
        }
        Ok(count as usize)
    }

    /// Skips `count` items of `item_bytes` each.
    pub(super) fn skip(
        &mut self,
        count: usize,
        item_bytes: usize,
        field: &str,
    ) -> Result<Range<usize>> {
        let start = self.at;
        self.take(count.saturating_mul(item_bytes), field)?;
        Ok(start..self.at)
    }

    /// The byte range of a string: a length and that many bytes.
    pub(super) fn string_range(&mut self, field: &str) -> Result<Range<usize>> {
        let length = self.count(1, field)?;
        self.skip(length, 1, field)
    }

    /// The bytes of a string, which may not be UTF-8.
    pub(super) fn string(&mut self, field: &str) -> Result<&'a [u8]> {
        let range = self.string_range(field)?;
        Ok(&self.file.bytes[range])
    }

    pub(super) fn malformed(
        &self,
        field: &str,
        found: impl Display,
        expected: impl Display,
    ) -> Error {
        Error::Malformed {
            file: self.file.name.clone(),
            location: escaped(field),
            found: found.to_string(),
            expected: expected.to_string(),
        }
    }
}
