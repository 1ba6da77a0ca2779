//! Segments: which KV blocks the query rows of a batch attend to, as the attention kernel reads it
//! from the device.

use std::ops::Range;

use muse_core::Result;
use muse_core::contract::{KV_BLOCK_SIZE, KvGroup, Mask, SeqSlice};
use muse_core::quant::tile::SIDE;

use crate::device::Device;
use crate::matrix::IndexBuffer;

/// Layout of a segment, in words. The header: row of tiles, first row in it, number of rows, number
/// of KV blocks, number of splits, index of this split. Then the visible keys of each of the 32
/// rows, begin and end, and then the KV blocks.
const SPLITS: usize = 4;
const VISIBLE_KEYS: usize = 16;
const BLOCK_LIST: usize = VISIBLE_KEYS + 2 * SIDE;

/// The segments of a batch. A segment is the part of one sequence in one row of tiles: its rows,
/// the KV blocks that any of them sees, and the keys that each of them sees, counted from the first
/// key of those blocks. Each is one page of an index buffer.
///
/// Long lists of KV blocks are split (split-KV), so that several cores share them. Splits begin at
/// multiples of `max_blocks` of the sequence, so that the sums of a row are the same whatever else
/// is in the batch.
pub struct Segments {
    pub(crate) buffer: IndexBuffer,
    max_blocks: usize,
    has_splits: bool,
}

impl Segments {
    /// Space for `capacity` segments of at most `max_blocks` KV blocks. None is in use.
    ///
    /// # Errors
    /// [`muse_core::Error::Exhausted`] when the device has not enough memory.
    pub fn new(device: &Device, capacity: usize, max_blocks: usize) -> Result<Self> {
        let mut buffer = IndexBuffer::with_pages(device, capacity, BLOCK_LIST + max_blocks)?;
        buffer.write(&[])?;
        Ok(Self { buffer, max_blocks, has_splits: false })
    }

    /// How many segments there is space for.
    pub fn capacity(&self) -> u32 {
        self.buffer.pages()
    }

    /// Whether any segment is one of several splits, whose partial results must be combined.
    pub fn has_splits(&self) -> bool {
        self.has_splits
    }

    /// Bytes of the buffer.
    pub fn bytes(&self) -> u64 {
        self.buffer.bytes()
    }

    /// How many segments the tokens of these slices make, each split counted.
    pub fn count(slices: &[SeqSlice<'_>], mask: Mask, max_blocks: usize) -> usize {
        tile_slices(slices).map(|part| part.splits(mask, max_blocks as u32).count()).sum()
    }

    /// Replaces all segments by those of `slices`.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    ///
    /// # Panics
    /// If there are more segments than the capacity.
    pub fn write(&mut self, slices: &[SeqSlice<'_>], group: KvGroup, mask: Mask) -> Result<()> {
        let width = self.buffer.buffer.page_bytes() as usize / 4;
        let mut words = Vec::new();
        self.has_splits = false;
        for part in tile_slices(slices) {
            for segment in part.segments(group, mask, self.max_blocks as u32) {
                self.has_splits |= segment[SPLITS] > 1;
                words.extend(segment);
                words.resize(words.len().next_multiple_of(width), 0);
            }
        }
        self.buffer.write(&words)
    }
}

/// The tokens of one slice in one row of tiles.
struct TileSlice<'a, 'b> {
    slice: &'a SeqSlice<'b>,
    /// Row of its first token in the batch.
    row: usize,
    /// Position of its first token.
    start: u32,
    len: usize,
}

fn tile_slices<'a, 'b>(slices: &'a [SeqSlice<'b>]) -> impl Iterator<Item = TileSlice<'a, 'b>> {
    let firsts =
        slices.iter().scan(0, |next, slice| Some(std::mem::replace(next, *next + slice.len)));
    let nonempty = slices.iter().zip(firsts).filter(|(slice, _)| slice.len > 0);
    nonempty.flat_map(|(slice, first)| {
        let end = first + slice.len;
        let rows = (first / SIDE..end.div_ceil(SIDE)).map(move |tile| first.max(tile * SIDE));
        rows.map(move |row| TileSlice {
            slice,
            row,
            start: slice.start + (row - first) as u32,
            len: end.min((row / SIDE + 1) * SIDE) - row,
        })
    })
}

impl TileSlice<'_, '_> {
    /// The keys that each token sees.
    fn visible(&self, mask: Mask) -> impl Iterator<Item = Range<u32>> {
        let positions = self.start..self.start + self.len as u32;
        positions.map(move |position| mask.visible(self.slice, position))
    }

    /// The KV blocks that any token sees, split at multiples of `max_blocks`.
    fn splits(&self, mask: Mask, max_blocks: u32) -> impl Iterator<Item = Range<u32>> {
        let size = KV_BLOCK_SIZE as u32;
        let first = self.visible(mask).map(|keys| keys.start).min().expect("at least one token");
        let end = self.visible(mask).map(|keys| keys.end).max().expect("at least one token");
        let (first, end) = (first / size, end.div_ceil(size));
        let splits = first / max_blocks..end.div_ceil(max_blocks);
        splits.map(move |at| first.max(at * max_blocks)..end.min((at + 1) * max_blocks))
    }

    /// The words of its segments, one per split.
    fn segments(
        &self,
        group: KvGroup,
        mask: Mask,
        max_blocks: u32,
    ) -> impl Iterator<Item = Vec<u32>> {
        let (size, first) = (KV_BLOCK_SIZE as u32, self.row % SIDE);
        let count = self.splits(mask, max_blocks).count() as u32;
        self.splits(mask, max_blocks).zip(0..).map(move |(blocks, split)| {
            let (tile, rows) = ((self.row / SIDE) as u32, self.len as u32);
            let mut words = vec![tile, first as u32, rows, blocks.len() as u32, count, split];
            words.resize(VISIBLE_KEYS, 0);
            // Rows of other sequences see all keys: their results are not written.
            let mut ranges = [[0, u32::MAX]; SIDE];
            for (range, keys) in ranges[first..].iter_mut().zip(self.visible(mask)) {
                *range = [keys.start, keys.end].map(|key| key.saturating_sub(blocks.start * size));
            }
            words.extend(ranges.as_flattened());
            words.extend(blocks.map(|block| self.slice.blocks.slot(group, block * size).0));
            words
        })
    }
}

#[cfg(test)]
mod tests {
    use muse_core::contract::BlockTable;

    use super::*;

    fn slice(start: u32, len: usize, window: &[u32], window_base: u32) -> SeqSlice<'_> {
        SeqSlice { start, len, blocks: BlockTable { full: &[], window, window_base } }
    }

    fn segments(part: &TileSlice<'_, '_>, mask: Mask, max_blocks: u32) -> Vec<Vec<u32>> {
        part.segments(KvGroup::Window, mask, max_blocks).collect()
    }

    #[test]
    fn long_block_lists_are_split_at_fixed_positions() {
        // Positions 199 and 200 see from 130 and 131 on: blocks 2 and 3, in splits of 3 blocks.
        let slices = [slice(199, 2, &[5, 4, 8], 64)];
        let part = tile_slices(&slices).next().unwrap();
        let splits = segments(&part, Mask::Causal { window: Some(70) }, 3);
        assert_eq!(splits.len(), 2);
        assert_eq!(splits[0][..6], [0, 0, 2, 1, 2, 0]);
        assert_eq!(splits[0][VISIBLE_KEYS..VISIBLE_KEYS + 4], [2, 72, 3, 73]);
        assert_eq!(splits[0][BLOCK_LIST..], [4]);
        assert_eq!(splits[1][..6], [0, 0, 2, 1, 2, 1]);
        assert_eq!(splits[1][VISIBLE_KEYS..VISIBLE_KEYS + 4], [0, 8, 0, 9]);
        assert_eq!(splits[1][BLOCK_LIST..], [8]);
    }

    #[test]
    fn slices_are_cut_at_rows_of_tiles() {
        let slices =
            [(100, 40), (7, 1), (9, 0), (0, 23)].map(|(start, len)| slice(start, len, &[], 0));
        let parts: Vec<_> =
            tile_slices(&slices).map(|part| (part.row, part.start, part.len)).collect();
        assert_eq!(parts, [(0, 100, 32), (32, 132, 8), (40, 7, 1), (41, 0, 23)]);
        let mask = Mask::Causal { window: None };
        assert_eq!(Segments::count(&slices, mask, 100), 4);
    }

    #[test]
    fn keys_are_counted_from_the_first_visible_block() {
        let slices = [slice(0, 3, &[9], 0), slice(200, 2, &[5, 4, 8], 64)];
        let mask = Mask::Causal { window: Some(70) };
        let segments: Vec<_> =
            tile_slices(&slices).flat_map(|part| segments(&part, mask, 100)).collect();
        let all = [0, u32::MAX];
        assert_eq!(segments[0][..6], [0, 0, 3, 1, 1, 0]);
        let visible = &segments[0][VISIBLE_KEYS..VISIBLE_KEYS + 8];
        assert_eq!(visible, [[0, 1], [0, 2], [0, 3], all].concat());
        assert_eq!(segments[0][BLOCK_LIST..], [9]);
        // Positions 131 to 200 and 132 to 201, counted from 128.
        assert_eq!(segments[1][..6], [0, 3, 2, 2, 1, 0]);
        let visible = &segments[1][VISIBLE_KEYS + 4..VISIBLE_KEYS + 12];
        assert_eq!(visible, [all, [3, 73], [4, 74], all].concat());
        assert_eq!(segments[1][BLOCK_LIST..], [4, 8]);
    }

    #[test]
    fn tokens_of_a_draft_block_see_each_other() {
        let slices = [slice(66, 3, &[1, 2], 0)];
        let part = tile_slices(&slices).next().unwrap();
        let words = &segments(&part, Mask::DraftBlock { reach: 10 }, 100)[0];
        assert_eq!(words[VISIBLE_KEYS..VISIBLE_KEYS + 6], [56, 69, 57, 69, 58, 69]);
    }
}
