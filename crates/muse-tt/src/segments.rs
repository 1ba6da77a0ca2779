//! Which rows of a pass attend to which pages, as the kernel reads it from the device.

use muse_core::Result;
use muse_core::contract::{Mask, PAGE_TOKENS, PageGroup, Place};
use muse_core::quant::tile::SIDE;

use crate::device::Device;
use crate::matrix::Ids;

/// Where in a segment's numbers the ranges of seen keys begin, a pair a row, and the pages behind
/// them. Before them: row of tiles, first row in it, rows, pages.
const SEEN: usize = 16;
const LIST: usize = SEEN + 2 * SIDE;

/// What each sequence has in each row of tiles: its rows, the pages that any of them sees, and the
/// keys that each of them sees, counted from the first key of those pages. A page of numbers each.
pub struct Segments {
    pub(crate) ids: Ids,
    most_pages: usize,
}

impl Segments {
    /// Room for `room` segments of up to `most_pages` pages; none is in use.
    ///
    /// # Errors
    /// [`muse_core::Error::Exhausted`] when the device has no room.
    pub fn new(device: &Device, room: usize, most_pages: usize) -> Result<Self> {
        let mut ids = Ids::in_pages(device, room, LIST + most_pages)?;
        ids.write(&[])?;
        Ok(Self { ids, most_pages })
    }

    /// How many there is room for.
    pub fn room(&self) -> u32 {
        self.ids.pages()
    }

    /// Bytes of their numbers.
    pub fn bytes(&self) -> u64 {
        self.ids.bytes()
    }

    /// How many segments the rows of these places are.
    pub fn count(places: &[Place<'_>]) -> usize {
        spans(places).count()
    }

    /// Replaces all of them by those of the rows of `places`.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    ///
    /// # Panics
    /// If there are more of them, or of their pages, than there is room for.
    pub fn write(&mut self, places: &[Place<'_>], group: PageGroup, mask: Mask) -> Result<()> {
        let width = self.ids.buffer.page_bytes() as usize / 4;
        let mut numbers = Vec::with_capacity(Self::count(places) * width);
        for span in spans(places) {
            let segment = span.numbers(group, mask);
            let pages = segment.len() - LIST;
            assert!(
                pages <= self.most_pages,
                "{pages} pages, there is room for {}",
                self.most_pages
            );
            numbers.extend(segment);
            numbers.resize(numbers.len().next_multiple_of(width), 0);
        }
        self.ids.write(&numbers)
    }
}

/// Rows of one place in one row of tiles.
struct Span<'a, 'p> {
    place: &'a Place<'p>,
    /// First row in the pass, first position.
    row: usize,
    start: u32,
    rows: usize,
}

fn spans<'a, 'p>(places: &'a [Place<'p>]) -> impl Iterator<Item = Span<'a, 'p>> {
    let firsts =
        places.iter().scan(0, |next, place| Some(std::mem::replace(next, *next + place.rows)));
    places.iter().zip(firsts).flat_map(|(place, first)| {
        let end = first + place.rows;
        let starts = (first / SIDE..end.div_ceil(SIDE)).map(move |tile| first.max(tile * SIDE));
        starts.map(move |row| Span {
            place,
            row,
            start: place.start + (row - first) as u32,
            rows: end.min((row / SIDE + 1) * SIDE) - row,
        })
    })
}

impl Span<'_, '_> {
    fn numbers(&self, group: PageGroup, mask: Mask) -> Vec<u32> {
        let page = PAGE_TOKENS as u32;
        let seen: Vec<_> = (self.start..self.start + self.rows as u32)
            .map(|position| mask.visible(self.place, position))
            .collect();
        let begin = seen.iter().map(|seen| seen.start).min().expect("a span has rows") / page;
        let end = seen.iter().map(|seen| seen.end).max().expect("a span has rows").div_ceil(page);
        let first = self.row % SIDE;
        let pages = end - begin;
        let mut numbers = vec![(self.row / SIDE) as u32, first as u32, self.rows as u32, pages];
        numbers.resize(SEEN, 0);
        // Rows of others see everything: what comes of them is written nowhere.
        let mut ranges = [[0, u32::MAX]; SIDE];
        for (range, seen) in ranges[first..].iter_mut().zip(&seen) {
            *range = [seen.start - begin * page, seen.end - begin * page];
        }
        numbers.extend(ranges.as_flattened());
        numbers.extend((begin..end).map(|at| self.place.pages.slot(group, at * page).0));
        numbers
    }
}

#[cfg(test)]
mod tests {
    use muse_core::contract::PageTable;

    use super::*;

    fn place(start: u32, rows: usize, window: &[u32], window_base: u32) -> Place<'_> {
        Place { start, rows, pages: PageTable { full: &[], window, window_base } }
    }

    #[test]
    fn rows_are_cut_at_tiles_and_sequences() {
        let places = [place(100, 40, &[], 0), place(7, 1, &[], 0), place(0, 23, &[], 0)];
        let cut: Vec<_> = spans(&places).map(|span| (span.row, span.start, span.rows)).collect();
        assert_eq!(cut, [(0, 100, 32), (32, 132, 8), (40, 7, 1), (41, 0, 23)]);
        assert_eq!(Segments::count(&places), 4);
    }

    #[test]
    fn keys_are_counted_from_the_first_page_that_is_seen() {
        let places = [place(0, 3, &[9], 0), place(200, 2, &[5, 4, 8], 64)];
        let mask = Mask::Causal { window: Some(70) };
        let numbers: Vec<_> =
            spans(&places).map(|span| span.numbers(PageGroup::Window, mask)).collect();
        let all = [0, u32::MAX];
        assert_eq!(numbers[0][..4], [0, 0, 3, 1]);
        assert_eq!(numbers[0][SEEN..SEEN + 8], [[0, 1], [0, 2], [0, 3], all].concat());
        assert_eq!(numbers[0][LIST..], [9]);
        // Positions 131 to 200 and 132 to 201, from 128 on.
        assert_eq!(numbers[1][..4], [0, 3, 2, 2]);
        assert_eq!(numbers[1][SEEN + 4..SEEN + 12], [all, [3, 73], [4, 74], all].concat());
        assert_eq!(numbers[1][LIST..], [4, 8]);
    }

    #[test]
    fn rows_of_a_block_see_each_other() {
        let places = [place(66, 3, &[1, 2], 0)];
        let span = spans(&places).next().unwrap();
        let numbers = span.numbers(PageGroup::Window, Mask::Block { reach: 10 });
        assert_eq!(numbers[SEEN..SEEN + 6], [56, 69, 57, 69, 58, 69]);
    }
}
