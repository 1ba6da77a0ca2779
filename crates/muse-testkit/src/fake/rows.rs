//! What the fake models store in their KV blocks, and the hash that reads it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use muse_core::contract::{BlockCopy, BlockTable, KV_BLOCK_SIZE, KvGroup, Token};
use muse_core::hash::hash64;
use muse_core::{Error, Result};

/// Shape of a fake model.
#[derive(Clone, Copy, Debug)]
pub struct FakeOptions {
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// The most positions.
    pub max_positions: usize,
    /// KV blocks of the full group.
    pub full_blocks: usize,
    /// KV blocks of the window group.
    pub window_blocks: usize,
    /// How many positions back the target model's window layer attends to (inclusive distance).
    pub reach: u32,
    /// The most tokens of a pass.
    pub rows: usize,
    /// The most tokens of a pass whose logits can be had.
    pub max_logits_rows: usize,
    /// How much the logit of the likeliest token exceeds the others; 0 makes all alike.
    pub peak: f32,
    /// Time of passes and of drafting on the model's own clock.
    pub cost: FakeCost,
}

/// Microseconds of passes and of drafting.
#[derive(Clone, Copy, Debug)]
pub struct FakeCost {
    /// Of a pass, by its tokens.
    pub pass: fn(usize) -> u64,
    /// Of drafting, by its draft blocks.
    pub draft: fn(usize) -> u64,
}

impl FakeCost {
    /// No time passes.
    pub const NOTHING: Self = Self { pass: |_| 0, draft: |_| 0 };
}

impl Default for FakeOptions {
    fn default() -> Self {
        Self {
            vocab: 61,
            max_positions: 4096,
            full_blocks: 64,
            window_blocks: 64,
            reach: 90,
            rows: 256,
            max_logits_rows: 128,
            peak: 4.0,
            cost: FakeCost::NOTHING,
        }
    }
}

/// The KV blocks of a fake target model, which the fake drafter reads too.
#[derive(Clone, Debug)]
pub struct FakeModel {
    pub(super) options: FakeOptions,
    pub(super) rows: Arc<Mutex<TargetRows>>,
    clock: Arc<AtomicU64>,
}

impl FakeModel {
    /// A model with empty KV blocks.
    pub fn new(options: FakeOptions) -> Self {
        let rows = TargetRows {
            full: Cells::new(options.full_blocks),
            window: Cells::new(options.window_blocks),
        };
        Self { options, rows: Arc::new(Mutex::new(rows)), clock: Arc::default() }
    }

    /// Time of all passes and drafting so far.
    pub fn elapsed(&self) -> Duration {
        Duration::from_micros(self.clock.load(Ordering::Relaxed))
    }

    pub(super) fn spend(&self, microseconds: u64) {
        self.clock.fetch_add(microseconds, Ordering::Relaxed);
    }

    /// Logits behind a position of this hash.
    pub(super) fn logits(&self, hash: u64, out: &mut [f32]) {
        for (id, logit) in out.iter_mut().enumerate() {
            *logit = (hash64(hash, id as u64) >> 44) as f32 * (2.0 / (1u64 << 20) as f32);
        }
        out[self.likeliest(hash).0 as usize] += self.options.peak;
    }

    /// The likeliest token.
    pub(super) fn likeliest(&self, hash: u64) -> Token {
        Token((hash >> 32) as u32 % self.options.vocab as u32)
    }
}

/// A cell per position: what the full and the window layer of the target model store.
#[derive(Debug)]
pub(super) struct TargetRows {
    pub(super) full: Cells,
    pub(super) window: Cells,
}

impl TargetRows {
    /// Hash of a position: of its token, its number and all positions it attends to. Those of the
    /// last positions that are in no KV block yet come from `trial`.
    pub(super) fn hash(
        &self,
        blocks: &BlockTable<'_>,
        reach: u32,
        token: Token,
        position: u32,
        trial: &[u64],
    ) -> u64 {
        let stored = position - trial.len() as u32;
        let mut hash = hash64(u64::from(token.0), u64::from(position));
        let mut fold = |cell: u64| {
            hash = (hash ^ cell).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7 ^ hash.rotate_left(29)
        };
        for p in 0..stored {
            fold(self.full.at(KvGroup::Full, blocks, p));
        }
        trial.iter().for_each(|cell| fold(*cell));
        // Cells of the window count differently: a block of one group never passes for the other's.
        let oldest = position.saturating_sub(reach);
        for p in oldest..stored {
            fold(!self.window.at(KvGroup::Window, blocks, p));
        }
        let seen = (position - oldest.max(stored)) as usize;
        trial[trial.len() - seen..].iter().for_each(|cell| fold(!cell));
        hash64(hash, 1)
    }

    pub(super) fn store(&mut self, blocks: &BlockTable<'_>, position: u32, hash: u64) {
        self.full.put(KvGroup::Full, blocks, position, hash);
        self.window.put(KvGroup::Window, blocks, position, hash);
    }
}

/// A cell for every position of every KV block of a group.
#[derive(Debug)]
pub(super) struct Cells(Vec<u64>);

impl Cells {
    pub(super) fn new(blocks: usize) -> Self {
        Self(vec![0; blocks * KV_BLOCK_SIZE])
    }

    fn index(group: KvGroup, blocks: &BlockTable<'_>, position: u32) -> usize {
        let (block, row) = blocks.slot(group, position);
        block as usize * KV_BLOCK_SIZE + row
    }

    pub(super) fn at(&self, group: KvGroup, blocks: &BlockTable<'_>, position: u32) -> u64 {
        self.0[Self::index(group, blocks, position)]
    }

    pub(super) fn put(
        &mut self,
        group: KvGroup,
        blocks: &BlockTable<'_>,
        position: u32,
        cell: u64,
    ) {
        self.0[Self::index(group, blocks, position)] = cell;
    }

    /// Makes the copies of this group. Positions that were not copied are overwritten with garbage.
    pub(super) fn copy(&mut self, group: KvGroup, copies: &[BlockCopy]) {
        for copy in copies.iter().filter(|copy| copy.group == group) {
            let (from, to) = (copy.from as usize * KV_BLOCK_SIZE, copy.to as usize * KV_BLOCK_SIZE);
            self.0.copy_within(from..from + copy.positions, to);
            self.0[to + copy.positions..to + KV_BLOCK_SIZE].fill(u64::MAX);
        }
    }

    pub(super) fn save(&self, block: u32, out: &mut Vec<u8>) {
        let cells = &self.0[block as usize * KV_BLOCK_SIZE..][..KV_BLOCK_SIZE];
        out.extend(cells.iter().flat_map(|cell| cell.to_le_bytes()));
    }

    pub(super) fn load(&mut self, block: u32, bytes: &mut &[u8]) -> Result<()> {
        let Some((head, rest)) = bytes.split_at_checked(KV_BLOCK_SIZE * 8) else {
            return Err(Error::Corrupt(format!(
                "a block of {} bytes, expected {}: save it again",
                bytes.len(),
                KV_BLOCK_SIZE * 8
            )));
        };
        let cells = &mut self.0[block as usize * KV_BLOCK_SIZE..][..KV_BLOCK_SIZE];
        for (cell, bytes) in cells.iter_mut().zip(head.as_chunks::<8>().0) {
            *cell = u64::from_le_bytes(*bytes);
        }
        *bytes = rest;
        Ok(())
    }
}
