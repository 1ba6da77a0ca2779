//! Which page belongs to whom. Numbers only; the bytes are with the models.

use std::ops::Range;

use super::backend::Backend;
use super::engine::SeqId;
use super::place::{PageGroup, PageKey, PageTable};
use crate::Result;
use crate::sampler::mix;

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
    /// Keeping pages elsewhere, when the pool was built to.
    fn spill(&mut self) -> Option<&mut dyn Spill>;
}

/// The part of a pool that says which pages to keep elsewhere and takes them back. Only complete
/// pages are spoken of.
pub trait Spill {
    /// Appends the pages that were evicted since it was asked last. Their bytes are there until the
    /// next copy, load or pass.
    fn evicted(&mut self, out: &mut Vec<ColdPage>);
    /// Appends every complete page that closed sequences left, the longest unused first.
    fn kept(&self, out: &mut Vec<ColdPage>);
    /// The first complete page of `prompt` that is not in the cache, and the rows it has. The last
    /// row of a prompt is no part of it: it runs in any case.
    fn missing(&self, prompt: &[PageKey]) -> Option<(PrefixName, Range<usize>)>;
    /// Makes room for the page that [`Spill::missing`] named; it counts as cached from now on and
    /// its bytes are the caller's to load. None when nothing can make way for it.
    fn adopt(&mut self, prompt: &[PageKey], window: bool) -> Option<ColdPage>;
}

/// Holds pages outside the cache, found by the prefix that they end. It may forget any of them.
pub trait Shelf: Send + Sync {
    /// Name of the empty prefix. Differs wherever pages of this model mean nothing.
    fn root(&self) -> PrefixName;
    /// Keeps the bytes of a page. Returns at once; what comes too fast is forgotten.
    fn put(&self, name: PrefixName, bytes: &[u8]);
    /// Waits until what was put is kept.
    fn settle(&self);
    /// Replaces `out` by the bytes kept under a name. False when there are none.
    fn get(&self, name: PrefixName, out: &mut Vec<u8>) -> bool;
}

/// A complete page of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColdPage {
    /// The prefix that it ends.
    pub name: PrefixName,
    /// Its page of the full group.
    pub full: u32,
    /// Its page of the window group, if that is still there.
    pub window: Option<u32>,
}

/// Name of all rows from the first to the end of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PrefixName(pub [u64; 2]);

impl PrefixName {
    /// The name of this prefix with more rows behind it.
    pub fn then(self, keys: &[PageKey]) -> Self {
        let mut lanes = self.0;
        let mut take = |word: u64| {
            // Two hashes that differ in their salt: 128 bits in all.
            lanes[0] = mix(lanes[0] ^ 0x6b65_7973, word);
            lanes[1] = mix(lanes[1] ^ 0x726f_7773, !word);
        };
        for key in keys {
            match *key {
                PageKey::Token(token) => take(u64::from(token.0)),
                PageKey::ImageRow { image, row } => {
                    let (halves, _) = image.0.as_chunks::<8>();
                    halves.iter().for_each(|half| take(u64::from_le_bytes(*half)));
                    // No token has a bit this high.
                    take(u64::from(row) | 1 << 63);
                }
            }
        }
        Self(lanes)
    }
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
