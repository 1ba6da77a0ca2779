//! Which page belongs to whom. Numbers only; the bytes are with the models.

use super::backend::Backend;
use super::engine::SeqId;
use super::place::{PageGroup, PageKey, PageTable};
use crate::Result;

/// The page accountant. Knows sequences and pages, never bytes.
///
/// A sequence has a length (rows that were written and kept) and pages reserved past it. A step is
/// `reserve`, run the rows, `commit` those that stay.
pub trait KvPool: Send {
    /// Starts a sequence. Returns how many leading rows of `prompt` are already cached (never all:
    /// the last row's scores are needed); the sequence's length starts there.
    fn open(&mut self, seq: SeqId, prompt: &[PageKey]) -> Result<u32>;
    /// Makes positions up to `end` writable. Appends the copies to make before anything runs
    /// (pages shared with others). [`crate::Error::Exhausted`] changes nothing.
    fn reserve(&mut self, seq: SeqId, end: u32, copies: &mut Vec<PageCopy>) -> Result<()>;
    /// The next `keys.len()` rows were written and stay. Pages that leave the window go back.
    fn commit(&mut self, seq: SeqId, keys: &[PageKey]);
    /// Forgets rows from `len` on and gives back the pages past it, reserved ones included.
    fn truncate(&mut self, seq: SeqId, len: u32);
    /// Rows committed.
    fn len(&self, seq: SeqId) -> u32;
    /// Current pages, reserved ones included.
    fn pages(&self, seq: SeqId) -> PageTable<'_>;
    /// Ends a sequence. Its committed rows may stay reusable until evicted.
    fn close(&mut self, seq: SeqId);
    /// Pages that could be reserved now, evictable ones included.
    fn free(&self) -> PageCount;
    /// All pages.
    fn total(&self) -> PageCount;
    /// Pages that a lone sequence of `rows` rows needs at most at one time.
    fn worst_case(&self, rows: u32) -> PageCount;
}

/// Pages of each group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCount {
    /// Of the full group.
    pub full: usize,
    /// Of the window group.
    pub window: usize,
}

/// A copy to make before the next pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCopy {
    /// The group of both pages.
    pub group: PageGroup,
    /// Source page.
    pub from: u32,
    /// Destination page.
    pub to: u32,
    /// Leading rows that matter.
    pub rows: usize,
}

/// The bytes behind page numbers, over all layers of the holder.
pub trait Pages<B: Backend> {
    /// Makes copies; those of a group that the holder lacks are skipped.
    fn copy_pages(&mut self, copies: &[PageCopy]) -> Result<()>;
    /// Appends the bytes of a page, all layers.
    fn save_page(&self, group: PageGroup, page: u32, out: &mut Vec<u8>) -> Result<()>;
    /// Takes what [`Pages::save_page`] wrote from the front of `bytes`.
    fn load_page(&mut self, group: PageGroup, page: u32, bytes: &mut &[u8]) -> Result<()>;
}
