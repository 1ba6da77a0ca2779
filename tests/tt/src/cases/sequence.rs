//! Sequences with scattered KV blocks, some of whose tokens are in the batch.

use muse_core::contract::{BlockTable, KV_BLOCK_SIZE, SeqSlice};

/// The KV blocks of a sequence, and which of its tokens are in the batch.
pub(super) struct Sequence {
    blocks: Vec<u32>,
    start: u32,
    len: usize,
}

impl Sequence {
    /// A sequence for each `(first position, tokens)`. KV blocks are assigned in turn, from the
    /// last of `blocks` down.
    pub(super) fn all(runs: &[(u32, usize)], blocks: usize) -> Vec<Self> {
        let ends = runs.iter().map(|(start, len)| *start as usize + len);
        let mut missing: Vec<usize> = ends.map(|end| end.div_ceil(KV_BLOCK_SIZE)).collect();
        let mut assigned = vec![Vec::new(); runs.len()];
        let mut free = (0..blocks as u32).rev();
        while missing.iter().any(|missing| *missing > 0) {
            for (missing, assigned) in missing.iter_mut().zip(&mut assigned) {
                if *missing > 0 {
                    assigned.push(free.next().expect("enough KV blocks for the case"));
                    *missing -= 1;
                }
            }
        }
        let runs = runs.iter().zip(assigned);
        runs.map(|((start, len), blocks)| Self { blocks, start: *start, len: *len }).collect()
    }

    /// A sequence that has all KV blocks in order, with all of its tokens in the batch.
    pub(super) fn of_all(blocks: usize) -> Self {
        Self { blocks: (0..blocks as u32).collect(), start: 0, len: blocks * KV_BLOCK_SIZE }
    }

    /// The slots of all positions up to the last one in the batch.
    pub(super) fn slots(&self) -> impl Iterator<Item = usize> {
        let slot = |position: usize| {
            let block = self.blocks[position / KV_BLOCK_SIZE] as usize;
            block * KV_BLOCK_SIZE + position % KV_BLOCK_SIZE
        };
        (0..self.start as usize + self.len).map(slot)
    }

    /// Its KV blocks.
    pub(super) fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// Its part of the batch. Both groups have the same KV blocks.
    pub(super) fn slice(&self) -> SeqSlice<'_> {
        let blocks = BlockTable { full: &self.blocks, window: &self.blocks, window_base: 0 };
        SeqSlice { start: self.start, len: self.len, blocks }
    }
}

/// The batch of the sequences.
pub(super) fn slices(sequences: &[Sequence]) -> Vec<SeqSlice<'_>> {
    sequences.iter().map(Sequence::slice).collect()
}
