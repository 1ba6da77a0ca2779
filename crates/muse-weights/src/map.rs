//! The bytes of a file: mapped from disk, part of the program, or in memory. The mapping is the only
//! unsafe code of the crate.

#![allow(unsafe_code)]

use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use crate::error::{Error, Result};

/// The bytes of a file: mapped, static or owned.
#[derive(Debug)]
pub struct Bytes(Storage);

#[derive(Debug)]
enum Storage {
    /// A mapped file, and its modification time where the system has one.
    Mapped(memmap2::Mmap, Option<SystemTime>),
    Static(&'static [u8]),
    Owned(Vec<u8>),
}

impl Bytes {
    /// Maps a file: pages are read when touched and shared with every process that maps it.
    ///
    /// The file must not change while it is mapped. If it is shortened, reading the part that is
    /// gone ends the process with SIGBUS.
    ///
    /// # Errors
    /// [`Error::Read`] when the system refuses, or the path is not a regular file.
    pub fn map(path: &Path) -> Result<Self> {
        let refused = |source: std::io::Error| Error::Read {
            file: path.display().to_string(),
            source: Arc::new(source),
        };
        let file = File::open(path).map_err(refused)?;
        let about = file.metadata().map_err(refused)?;
        if !about.is_file() {
            return Err(refused(std::io::Error::other("not a regular file")));
        }
        // SAFETY: the mapping is private and read-only, so this process cannot write through it.
        // The file is regular (checked above) and, as documented, must not change while it is
        // mapped. Every value read from the bytes is checked, so changed bytes could give wrong
        // numbers but no invalid memory access.
        let map = unsafe { memmap2::MmapOptions::new().map_copy_read_only(&file) };
        Ok(Self(Storage::Mapped(map.map_err(refused)?, about.modified().ok())))
    }

    /// The modification time of a mapped file, where the system has one.
    pub(crate) fn modified(&self) -> Option<SystemTime> {
        match self.0 {
            Storage::Mapped(_, modified) => modified,
            Storage::Static(_) | Storage::Owned(_) => None,
        }
    }

    /// Returns the memory of a range of a mapped file to the system; pages are read again when
    /// touched.
    pub(crate) fn release(&self, range: Range<usize>) {
        match &self.0 {
            #[cfg(unix)]
            Storage::Mapped(map, _) => {
                let advice = memmap2::UncheckedAdvice::DontNeed;
                // SAFETY: nothing is ever written to this private, read-only mapping of a file: a
                // dropped page has the same bytes when it is touched again, so references into
                // the range stay valid.
                let advised =
                    unsafe { map.unchecked_advise_range(advice, range.start, range.len()) };
                // Advice only: if the system refuses, the pages stay in memory.
                drop(advised);
            }
            _ => {}
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Storage::Mapped(map, _) => map,
            Storage::Static(bytes) => bytes,
            Storage::Owned(bytes) => bytes,
        }
    }
}

impl From<&'static [u8]> for Bytes {
    fn from(bytes: &'static [u8]) -> Self {
        Self(Storage::Static(bytes))
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Storage::Owned(bytes))
    }
}
