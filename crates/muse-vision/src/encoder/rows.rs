//! Rows of encoded pictures, remembered for later requests.

use std::collections::VecDeque;
use std::sync::Arc;

use muse_core::contract::{Backend, ContentHash};

/// Rows by the hash of their picture, the ones that were used last in front.
pub(super) struct EncodedRows<B: Backend> {
    max_bytes: usize,
    bytes: usize,
    pictures: VecDeque<EncodedPicture<B>>,
}

struct EncodedPicture<B: Backend> {
    hash: ContentHash,
    rows: Arc<B::Buf>,
    bytes: usize,
}

impl<B: Backend> EncodedRows<B> {
    /// Remembers at most `max_bytes`.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, bytes: 0, pictures: VecDeque::new() }
    }

    /// The rows of a picture.
    pub(super) fn find(&mut self, hash: ContentHash) -> Option<Arc<B::Buf>> {
        let index = self.pictures.iter().position(|picture| picture.hash == hash)?;
        let picture = self.pictures.remove(index)?;
        let rows = Arc::clone(&picture.rows);
        self.pictures.push_front(picture);
        Some(rows)
    }

    /// Remembers rows of `bytes` bytes; forgets those that were not used for longest where there
    /// are too many. Rows that are larger than all that may be remembered are not.
    pub(super) fn insert(&mut self, hash: ContentHash, rows: Arc<B::Buf>, bytes: usize) {
        if bytes > self.max_bytes {
            return;
        }
        self.bytes += bytes;
        self.pictures.push_front(EncodedPicture { hash, rows, bytes });
        while self.bytes > self.max_bytes {
            let oldest = self.pictures.pop_back().expect("bytes are those of pictures");
            self.bytes -= oldest.bytes;
        }
    }
}
