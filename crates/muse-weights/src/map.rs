//! The bytes of a file: mapped from disk, part of the program, or in memory. The only unsafe code
//! of the crate is the mapping.

#![allow(unsafe_code)]

use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use crate::error::{Error, Result};

/// Bytes of a file, wherever they live.
#[derive(Debug)]
pub struct Bytes(Place);

#[derive(Debug)]
enum Place {
    /// And when the file was last changed, where that is known.
    Mapped(memmap2::Mmap, Option<SystemTime>),
    Static(&'static [u8]),
    Owned(Vec<u8>),
}

impl Bytes {
    /// Maps a file: pages are read when touched and shared with every process that maps it.
    ///
    /// The file must stay as it is while it is open here, as for every program that maps files:
    /// shortening it makes the next touch of the lost part end the process.
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
        // SAFETY: the mapping is private and read-only, so this process cannot write through it;
        // the file is regular (checked above), and whoever opens a checkpoint promises, as
        // documented, that nobody changes it meanwhile. No value is read from the bytes without
        // a check, so that even changed bytes could only give wrong numbers.
        let map = unsafe { memmap2::MmapOptions::new().map_copy_read_only(&file) };
        Ok(Self(Place::Mapped(map.map_err(refused)?, about.modified().ok())))
    }

    /// When the file was last changed; none for bytes that are no file's.
    pub(crate) fn changed(&self) -> Option<SystemTime> {
        match self.0 {
            Place::Mapped(_, changed) => changed,
            Place::Static(_) | Place::Owned(_) => None,
        }
    }

    /// Gives the memory back that a range of a mapped file takes; it is read again when touched.
    pub(crate) fn release(&self, range: Range<usize>) {
        match &self.0 {
            #[cfg(unix)]
            Place::Mapped(map, _) => {
                let advice = memmap2::UncheckedAdvice::DontNeed;
                // SAFETY: nothing was ever written to this private, read-only mapping of a file, so
                // that a page which is dropped comes back with the same bytes when it is touched:
                // no reference into it sees a change.
                let advised =
                    unsafe { map.unchecked_advise_range(advice, range.start, range.len()) };
                // A system that refuses keeps the pages: more memory is used, nothing is wrong.
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
            Place::Mapped(map, _) => map,
            Place::Static(bytes) => bytes,
            Place::Owned(bytes) => bytes,
        }
    }
}

impl From<&'static [u8]> for Bytes {
    fn from(bytes: &'static [u8]) -> Self {
        Self(Place::Static(bytes))
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Place::Owned(bytes))
    }
}
