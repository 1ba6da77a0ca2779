//! Sequences over scattered pages, some of whose rows run.

use muse_core::contract::{BlockTable, KV_BLOCK_SIZE, SeqSlice};

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
        let mut wanted: Vec<usize> = ends.map(|end| end.div_ceil(KV_BLOCK_SIZE)).collect();
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
        Self { pages: (0..pages as u32).collect(), start: 0, rows: pages * KV_BLOCK_SIZE }
    }

    /// Page and row in it of each of its positions up to the last that runs.
    pub(super) fn slots(&self) -> impl Iterator<Item = usize> {
        let end = self.start as usize + self.rows;
        (0..end)
            .map(|at| self.pages[at / KV_BLOCK_SIZE] as usize * KV_BLOCK_SIZE + at % KV_BLOCK_SIZE)
    }

    /// Its pages.
    pub(super) fn pages(&self) -> &[u32] {
        &self.pages
    }

    /// Where its rows live; pages of both groups are the same.
    pub(super) fn slice(&self) -> SeqSlice<'_> {
        let pages = BlockTable { full: &self.pages, window: &self.pages, window_base: 0 };
        SeqSlice { start: self.start, len: self.rows, blocks: pages }
    }
}

/// Where the rows of all of them live.
pub(super) fn slices(sequences: &[Sequence]) -> Vec<SeqSlice<'_>> {
    sequences.iter().map(Sequence::slice).collect()
}
