//! Tokens, KV blocks and slices of sequences, which all other contracts use.

use std::ops::Range;

/// Positions in one KV block.
pub const KV_BLOCK_SIZE: usize = 64;

/// A token id of the model's vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Token(pub u32);

/// A running request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeqId(pub u64);

/// Hash of a picture as the model sees it: pixels after resizing, and the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentHash(pub [u8; 16]);

/// The content of one position of a sequence, for prefix caching: after equal prefixes, equal keys
/// have equal K and V.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PositionKey {
    /// A text token.
    Token(Token),
    /// Row `row` of the embeddings of the picture with this content.
    ImageRow {
        /// Hash of the pixels and of how they are encoded.
        image: ContentHash,
        /// Row of the picture's embeddings, from 0.
        row: u32,
    },
}

impl From<Token> for PositionKey {
    fn from(token: Token) -> Self {
        Self::Token(token)
    }
}

/// Which layers a KV block belongs to. Block numbers of the two groups are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvGroup {
    /// Layers that attend to every earlier position.
    Full,
    /// Sliding window layers, the drafter's included: their blocks return to the pool once they
    /// are out of the window.
    Window,
}

/// The KV blocks of one sequence. A block number is valid for all layers of its group.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockTable<'a> {
    /// Block `i` holds positions `64 i ..= 64 i + 63`.
    pub full: &'a [u32],
    /// Block `i` holds positions `window_base + 64 i ..= window_base + 64 i + 63`.
    pub window: &'a [u32],
    /// First position of `window[0]`, a multiple of [`KV_BLOCK_SIZE`].
    pub window_base: u32,
}

impl<'a> BlockTable<'a> {
    /// The blocks of a group and the position of the first one.
    pub fn group(&self, group: KvGroup) -> (&'a [u32], u32) {
        match group {
            KvGroup::Full => (self.full, 0),
            KvGroup::Window => (self.window, self.window_base),
        }
    }

    /// Number of the block that holds `position`, and the offset inside it.
    ///
    /// # Panics
    /// If the position has no block: the pool reserves blocks before a pass runs.
    pub fn slot(&self, group: KvGroup, position: u32) -> (u32, usize) {
        let (blocks, base) = self.group(group);
        assert!(position >= base, "position {position} lies before the window's first, {base}");
        let offset = (position - base) as usize;
        (blocks[offset / KV_BLOCK_SIZE], offset % KV_BLOCK_SIZE)
    }
}

/// Consecutive positions of one sequence and its KV blocks: all that a model knows of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct SeqSlice<'a> {
    /// First position.
    pub start: u32,
    /// Number of positions: `start .. start + len`.
    pub len: usize,
    /// Blocks that cover every position up to `start + len` that is attended to.
    pub blocks: BlockTable<'a>,
}

impl SeqSlice<'_> {
    /// Its positions.
    pub fn positions(&self) -> Range<u32> {
        self.start..self.start + self.len as u32
    }

    /// Positions of all slices together.
    pub fn total_len(slices: &[Self]) -> usize {
        slices.iter().map(|slice| slice.len).sum()
    }
}

/// KV blocks of each group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCount {
    /// Of the full group.
    pub full: usize,
    /// Of the window group.
    pub window: usize,
}

/// A copy of a KV block to make before the next pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    /// The group of both blocks.
    pub group: KvGroup,
    /// Source block.
    pub from: u32,
    /// Destination block.
    pub to: u32,
    /// Leading positions to copy.
    pub positions: usize,
}

/// Clears a vector and returns its memory for items of another lifetime, so that steps reuse
/// vectors of borrowed items without allocating.
pub fn recycle<A, B>(mut items: Vec<A>) -> Vec<B> {
    assert!(size_of::<A>() == size_of::<B>() && align_of::<A>() == align_of::<B>());
    items.clear();
    // The standard library collects a vector's own iterator in place.
    items.into_iter().map(|_| -> B { unreachable!("the vector was just cleared") }).collect()
}
