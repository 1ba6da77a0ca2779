//! Which rows of a pass attend to which pages, as the kernel reads it from the device.

use std::ops::Range;

use muse_core::Result;
use muse_core::contract::{KV_BLOCK_SIZE, KvGroup, Mask, SeqSlice};
use muse_core::quant::tile::SIDE;

use crate::device::Device;
use crate::matrix::Ids;

/// Where in a segment's numbers the ranges of seen keys begin, a pair a row, and the pages behind
/// them. Before them: row of tiles, first row in it, rows, pages, pieces and which one it is.
const PIECES: usize = 4;
const SEEN: usize = 16;
const LIST: usize = SEEN + 2 * SIDE;

/// What each sequence has in each row of tiles: its rows, the pages that any of them sees, and the
/// keys that each of them sees, counted from the first key of those pages. A page of numbers each.
/// Long lists of pages are cut into pieces, so that cores share them: at fixed positions, for then a
/// row's sums are the same whatever its company sees.
pub struct Segments {
    pub(crate) ids: Ids,
    most_pages: usize,
    has_pieces: bool,
}

impl Segments {
    /// Room for `room` segments that are cut at multiples of `most_pages` pages; none is in use.
    ///
    /// # Errors
    /// [`muse_core::Error::Exhausted`] when the device has no room.
    pub fn new(device: &Device, room: usize, most_pages: usize) -> Result<Self> {
        let mut ids = Ids::in_pages(device, room, LIST + most_pages)?;
        ids.write(&[])?;
        Ok(Self { ids, most_pages, has_pieces: false })
    }

    /// How many there is room for.
    pub fn room(&self) -> u32 {
        self.ids.pages()
    }

    /// Whether any of them is a piece of a longer one.
    pub fn has_pieces(&self) -> bool {
        self.has_pieces
    }

    /// Bytes of their numbers.
    pub fn bytes(&self) -> u64 {
        self.ids.bytes()
    }

    /// How many segments the rows of these slices are, pieces of up to `most_pages` pages counted
    /// each.
    pub fn count(slices: &[SeqSlice<'_>], mask: Mask, most_pages: usize) -> usize {
        spans(slices).map(|span| span.pieces(mask, most_pages as u32).count()).sum()
    }

    /// Replaces all of them by those of the rows of `slices`.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    ///
    /// # Panics
    /// If there are more of them than there is room for.
    pub fn write(&mut self, slices: &[SeqSlice<'_>], group: KvGroup, mask: Mask) -> Result<()> {
        let width = self.ids.buffer.page_bytes() as usize / 4;
        let mut numbers = Vec::new();
        self.has_pieces = false;
        for span in spans(slices) {
            for segment in span.segments(group, mask, self.most_pages as u32) {
                self.has_pieces |= segment[PIECES] > 1;
                numbers.extend(segment);
                numbers.resize(numbers.len().next_multiple_of(width), 0);
            }
        }
        self.ids.write(&numbers)
    }
}

/// Rows of one slice in one row of tiles.
struct Span<'a, 'p> {
    slice: &'a SeqSlice<'p>,
    /// First row in the pass, first position.
    row: usize,
    start: u32,
    rows: usize,
}

fn spans<'a, 'p>(slices: &'a [SeqSlice<'p>]) -> impl Iterator<Item = Span<'a, 'p>> {
    let firsts =
        slices.iter().scan(0, |next, slice| Some(std::mem::replace(next, *next + slice.len)));
    let running = slices.iter().zip(firsts).filter(|(slice, _)| slice.len > 0);
    running.flat_map(|(slice, first)| {
        let end = first + slice.len;
        let starts = (first / SIDE..end.div_ceil(SIDE)).map(move |tile| first.max(tile * SIDE));
        starts.map(move |row| Span {
            slice,
            row,
            start: slice.start + (row - first) as u32,
            rows: end.min((row / SIDE + 1) * SIDE) - row,
        })
    })
}

impl Span<'_, '_> {
    fn seen(&self, mask: Mask) -> impl Iterator<Item = Range<u32>> {
        let rows = self.start..self.start + self.rows as u32;
        rows.map(move |position| mask.visible(self.slice, position))
    }

    /// The pages that any of its rows sees, cut.
    fn pieces(&self, mask: Mask, most: u32) -> impl Iterator<Item = Range<u32>> {
        let page = KV_BLOCK_SIZE as u32;
        let begin = self.seen(mask).map(|seen| seen.start).min().expect("a span has rows") / page;
        let end = self.seen(mask).map(|seen| seen.end).max().expect("a span has rows");
        let end = end.div_ceil(page);
        let cuts = begin / most..end.div_ceil(most);
        cuts.map(move |cut| begin.max(cut * most)..end.min((cut + 1) * most))
    }

    fn segments(&self, group: KvGroup, mask: Mask, most: u32) -> impl Iterator<Item = Vec<u32>> {
        let (page, first) = (KV_BLOCK_SIZE as u32, self.row % SIDE);
        let count = self.pieces(mask, most).count() as u32;
        self.pieces(mask, most).zip(0..).map(move |(pages, piece)| {
            let (tile, rows) = ((self.row / SIDE) as u32, self.rows as u32);
            let mut numbers = vec![tile, first as u32, rows, pages.len() as u32, count, piece];
            numbers.resize(SEEN, 0);
            // Rows of others see everything: what comes of them is written nowhere.
            let mut ranges = [[0, u32::MAX]; SIDE];
            for (range, seen) in ranges[first..].iter_mut().zip(self.seen(mask)) {
                *range = [seen.start, seen.end].map(|at| at.saturating_sub(pages.start * page));
            }
            numbers.extend(ranges.as_flattened());
            numbers.extend(pages.map(|at| self.slice.blocks.slot(group, at * page).0));
            numbers
        })
    }
}

#[cfg(test)]
mod tests {
    use muse_core::contract::BlockTable;

    use super::*;

    fn slice(start: u32, rows: usize, window: &[u32], window_base: u32) -> SeqSlice<'_> {
        SeqSlice { start, len: rows, blocks: BlockTable { full: &[], window, window_base } }
    }

    fn all_of(span: &Span<'_, '_>, mask: Mask, most: u32) -> Vec<Vec<u32>> {
        span.segments(KvGroup::Window, mask, most).collect()
    }

    #[test]
    fn long_lists_are_cut_at_fixed_positions() {
        // Positions 199 and 200 see from 130 and 131 on: pages 2 and 3, of pieces of 3.
        let slices = [slice(199, 2, &[5, 4, 8], 64)];
        let span = spans(&slices).next().unwrap();
        let pieces = all_of(&span, Mask::Causal { window: Some(70) }, 3);
        assert_eq!(pieces.len(), 2);
        assert_eq!(pieces[0][..6], [0, 0, 2, 1, 2, 0]);
        assert_eq!(pieces[0][SEEN..SEEN + 4], [2, 72, 3, 73]);
        assert_eq!(pieces[0][LIST..], [4]);
        assert_eq!(pieces[1][..6], [0, 0, 2, 1, 2, 1]);
        assert_eq!(pieces[1][SEEN..SEEN + 4], [0, 8, 0, 9]);
        assert_eq!(pieces[1][LIST..], [8]);
    }

    #[test]
    fn rows_are_cut_at_tiles_and_sequences() {
        let slices =
            [(100, 40), (7, 1), (9, 0), (0, 23)].map(|(start, rows)| slice(start, rows, &[], 0));
        let cut: Vec<_> = spans(&slices).map(|span| (span.row, span.start, span.rows)).collect();
        assert_eq!(cut, [(0, 100, 32), (32, 132, 8), (40, 7, 1), (41, 0, 23)]);
        let mask = Mask::Causal { window: None };
        assert_eq!(Segments::count(&slices, mask, 100), 4);
    }

    #[test]
    fn keys_are_counted_from_the_first_page_that_is_seen() {
        let slices = [slice(0, 3, &[9], 0), slice(200, 2, &[5, 4, 8], 64)];
        let mask = Mask::Causal { window: Some(70) };
        let numbers: Vec<_> = spans(&slices).flat_map(|span| all_of(&span, mask, 100)).collect();
        let all = [0, u32::MAX];
        assert_eq!(numbers[0][..6], [0, 0, 3, 1, 1, 0]);
        assert_eq!(numbers[0][SEEN..SEEN + 8], [[0, 1], [0, 2], [0, 3], all].concat());
        assert_eq!(numbers[0][LIST..], [9]);
        // Positions 131 to 200 and 132 to 201, from 128 on.
        assert_eq!(numbers[1][..6], [0, 3, 2, 2, 1, 0]);
        assert_eq!(numbers[1][SEEN + 4..SEEN + 12], [all, [3, 73], [4, 74], all].concat());
        assert_eq!(numbers[1][LIST..], [4, 8]);
    }

    #[test]
    fn rows_of_a_block_see_each_other() {
        let slices = [slice(66, 3, &[1, 2], 0)];
        let span = spans(&slices).next().unwrap();
        let numbers = &all_of(&span, Mask::DraftBlock { reach: 10 }, 100)[0];
        assert_eq!(numbers[SEEN..SEEN + 6], [56, 69, 57, 69, 58, 69]);
    }
}
