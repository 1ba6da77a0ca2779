//! Tokens, pages and places: where the rows of a sequence live in the cache.

use std::ops::Range;

use super::vision::ContentHash;

/// Positions in one page of the KV cache.
pub const PAGE_TOKENS: usize = 64;

/// A token id of the model's vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Token(pub u32);

/// What a row of a sequence is, for caching: equal keys at equal positions after equal prefixes
/// have equal K/V.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PageKey {
    /// A text token.
    Token(Token),
    /// Row `row` of the picture with this content.
    ImageRow {
        /// Hash of the pixels and of how they are encoded.
        image: ContentHash,
        /// Row of the picture's embedding, from 0.
        row: u32,
    },
}

/// Which layers a page belongs to. Page numbers of the two groups are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageGroup {
    /// Layers that see every earlier position.
    Full,
    /// Sliding layers, the drafter's included: pages return to the pool once out of the window.
    Window,
}

/// The pages of one sequence. A page number is valid for all layers of its group.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageTable<'a> {
    /// Page `i` holds positions `64 i .. 64 i + 63`.
    pub full: &'a [u32],
    /// Page `i` holds positions `window_base + 64 i ..= window_base + 64 i + 63`.
    pub window: &'a [u32],
    /// First position of `window[0]`, a multiple of [`PAGE_TOKENS`].
    pub window_base: u32,
}

impl<'a> PageTable<'a> {
    /// The pages of a group and the position of the first one.
    pub fn group(&self, group: PageGroup) -> (&'a [u32], u32) {
        match group {
            PageGroup::Full => (self.full, 0),
            PageGroup::Window => (self.window, self.window_base),
        }
    }

    /// Page and row inside it that hold `position`.
    ///
    /// # Panics
    /// If the position has no page: the pool reserves before anything runs.
    pub fn slot(&self, group: PageGroup, position: u32) -> (u32, usize) {
        let (pages, base) = self.group(group);
        assert!(position >= base, "position {position} lies before the window pages at {base}");
        let offset = (position - base) as usize;
        (pages[offset / PAGE_TOKENS], offset % PAGE_TOKENS)
    }
}

/// Where consecutive rows of one sequence live. All that a model knows of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Position of the first row.
    pub start: u32,
    /// Number of rows, at positions `start .. start + rows`.
    pub rows: usize,
    /// Pages that cover every visible position up to `start + rows`.
    pub pages: PageTable<'a>,
}

impl Place<'_> {
    /// Positions of its rows.
    pub fn positions(&self) -> Range<u32> {
        self.start..self.start + self.rows as u32
    }

    /// Rows of all places.
    pub fn total_rows(places: &[Self]) -> usize {
        places.iter().map(|place| place.rows).sum()
    }
}

/// Empties a vector and hands back its memory for items of another lifetime, so that steps can
/// reuse buffers of borrowed items without allocating.
pub fn recycle<A, B>(mut items: Vec<A>) -> Vec<B> {
    assert!(size_of::<A>() == size_of::<B>() && align_of::<A>() == align_of::<B>());
    items.clear();
    // The standard library collects a vector's own iterator in place.
    items.into_iter().map(|_| -> B { unreachable!("the vector was just cleared") }).collect()
}
