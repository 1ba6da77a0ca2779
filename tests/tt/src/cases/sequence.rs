//! Sequences over scattered pages, some of whose rows run.

use muse_core::contract::{PAGE_TOKENS, PageTable, Place};

/// Pages of a sequence and the rows of it that run.
pub(super) struct Sequence {
    pages: Vec<u32>,
    start: u32,
    rows: usize,
}

impl Sequence {
    /// Sequences of which `(first position, rows)` run; their pages are taken in turn, from the last
    /// one down.
    pub(super) fn all(runs: &[(u32, usize)], pages: usize) -> Vec<Self> {
        let ends = runs.iter().map(|(start, rows)| *start as usize + rows);
        let mut wanted: Vec<usize> = ends.map(|end| end.div_ceil(PAGE_TOKENS)).collect();
        let mut taken = vec![Vec::new(); runs.len()];
        let mut free = (0..pages as u32).rev();
        while wanted.iter().any(|wanted| *wanted > 0) {
            for (wanted, taken) in wanted.iter_mut().zip(&mut taken) {
                if *wanted > 0 {
                    taken.push(free.next().expect("enough pages for the case"));
                    *wanted -= 1;
                }
            }
        }
        let runs = runs.iter().zip(taken);
        runs.map(|((start, rows), pages)| Self { pages, start: *start, rows: *rows }).collect()
    }

    /// One that has all pages in order, and all of whose rows run.
    pub(super) fn of_all(pages: usize) -> Self {
        Self { pages: (0..pages as u32).collect(), start: 0, rows: pages * PAGE_TOKENS }
    }

    /// Page and row in it of each of its positions up to the last that runs.
    pub(super) fn slots(&self) -> impl Iterator<Item = usize> {
        let end = self.start as usize + self.rows;
        (0..end).map(|at| self.pages[at / PAGE_TOKENS] as usize * PAGE_TOKENS + at % PAGE_TOKENS)
    }

    /// Its pages.
    pub(super) fn pages(&self) -> &[u32] {
        &self.pages
    }

    /// Where its rows live; pages of both groups are the same.
    pub(super) fn place(&self) -> Place<'_> {
        let pages = PageTable { full: &self.pages, window: &self.pages, window_base: 0 };
        Place { start: self.start, rows: self.rows, pages }
    }
}

/// Where the rows of all of them live.
pub(super) fn places(sequences: &[Sequence]) -> Vec<Place<'_>> {
    sequences.iter().map(Sequence::place).collect()
}
