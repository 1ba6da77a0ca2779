//! What the fake models keep in their pages, and the hash that reads it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use muse_core::contract::{PAGE_TOKENS, PageCopy, PageGroup, PageTable, Token};
use muse_core::sampler::mix;
use muse_core::{Error, Result};

/// Shape of a fake model.
#[derive(Clone, Copy, Debug)]
pub struct FakeOptions {
    /// Tokens.
    pub vocab: usize,
    /// The most positions.
    pub max_positions: usize,
    /// Pages of the full group.
    pub full_pages: usize,
    /// Pages of the window group.
    pub window_pages: usize,
    /// Farthest distance back that the target's window layer sees, inclusive.
    pub reach: u32,
    /// The most rows of a pass.
    pub rows: usize,
    /// The most rows of a pass with scores.
    pub score_rows: usize,
    /// How much the score of the likeliest token stands out: 0 makes all alike.
    pub peak: f32,
    /// What passes and drafts take on the model's own clock.
    pub cost: FakeCost,
}

/// Microseconds by what is run.
#[derive(Clone, Copy, Debug)]
pub struct FakeCost {
    /// Of a pass, by its rows.
    pub pass: fn(usize) -> u64,
    /// Of drafting, by its blocks.
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
            full_pages: 64,
            window_pages: 64,
            reach: 90,
            rows: 256,
            score_rows: 128,
            peak: 4.0,
            cost: FakeCost::NOTHING,
        }
    }
}

/// The pages of a fake target, shared with the drafter that is to guess well.
#[derive(Clone, Debug)]
pub struct FakeModel {
    pub(super) options: FakeOptions,
    pub(super) rows: Arc<Mutex<TargetRows>>,
    clock: Arc<AtomicU64>,
}

impl FakeModel {
    /// A model with nothing in its pages.
    pub fn new(options: FakeOptions) -> Self {
        let rows = TargetRows {
            full: Cells::new(options.full_pages),
            window: Cells::new(options.window_pages),
        };
        Self { options, rows: Arc::new(Mutex::new(rows)), clock: Arc::default() }
    }

    /// What all passes and drafts took so far.
    pub fn elapsed(&self) -> Duration {
        Duration::from_micros(self.clock.load(Ordering::Relaxed))
    }

    pub(super) fn spend(&self, microseconds: u64) {
        self.clock.fetch_add(microseconds, Ordering::Relaxed);
    }

    /// Scores behind a row of this hash.
    pub(super) fn scores(&self, hash: u64, out: &mut [f32]) {
        for (id, score) in out.iter_mut().enumerate() {
            *score = (mix(hash, id as u64) >> 44) as f32 * (2.0 / (1u64 << 20) as f32);
        }
        out[self.likeliest(hash).0 as usize] += self.options.peak;
    }

    /// The token that stands out.
    pub(super) fn likeliest(&self, hash: u64) -> Token {
        Token((hash >> 32) as u32 % self.options.vocab as u32)
    }
}

/// One row a position: what the full and the window layer of the target store.
#[derive(Debug)]
pub(super) struct TargetRows {
    pub(super) full: Cells,
    pub(super) window: Cells,
}

impl TargetRows {
    /// Hash of a row: of its token, its position and all rows before it that it sees. Rows of the
    /// last positions that are in no page yet come from `trial`.
    pub(super) fn hash(
        &self,
        pages: &PageTable<'_>,
        reach: u32,
        token: Token,
        position: u32,
        trial: &[u64],
    ) -> u64 {
        let stored = position - trial.len() as u32;
        let mut hash = mix(u64::from(token.0), u64::from(position));
        let mut fold = |cell: u64| {
            hash = (hash ^ cell).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7 ^ hash.rotate_left(29)
        };
        for p in 0..stored {
            fold(self.full.at(PageGroup::Full, pages, p));
        }
        trial.iter().for_each(|cell| fold(*cell));
        // The window's rows count differently: a page of one group never passes for the other's.
        let oldest = position.saturating_sub(reach);
        for p in oldest..stored {
            fold(!self.window.at(PageGroup::Window, pages, p));
        }
        let seen = (position - oldest.max(stored)) as usize;
        trial[trial.len() - seen..].iter().for_each(|cell| fold(!cell));
        mix(hash, 1)
    }

    pub(super) fn store(&mut self, pages: &PageTable<'_>, position: u32, hash: u64) {
        self.full.put(PageGroup::Full, pages, position, hash);
        self.window.put(PageGroup::Window, pages, position, hash);
    }
}

/// A cell for every position of every page of a group.
#[derive(Debug)]
pub(super) struct Cells(Vec<u64>);

impl Cells {
    pub(super) fn new(pages: usize) -> Self {
        Self(vec![0; pages * PAGE_TOKENS])
    }

    fn index(group: PageGroup, pages: &PageTable<'_>, position: u32) -> usize {
        let (page, row) = pages.slot(group, position);
        page as usize * PAGE_TOKENS + row
    }

    pub(super) fn at(&self, group: PageGroup, pages: &PageTable<'_>, position: u32) -> u64 {
        self.0[Self::index(group, pages, position)]
    }

    pub(super) fn put(
        &mut self,
        group: PageGroup,
        pages: &PageTable<'_>,
        position: u32,
        cell: u64,
    ) {
        self.0[Self::index(group, pages, position)] = cell;
    }

    /// Makes the copies of this group. Rows that do not matter are spoilt.
    pub(super) fn copy(&mut self, group: PageGroup, copies: &[PageCopy]) {
        for copy in copies.iter().filter(|copy| copy.group == group) {
            let (from, to) = (copy.from as usize * PAGE_TOKENS, copy.to as usize * PAGE_TOKENS);
            self.0.copy_within(from..from + copy.rows, to);
            self.0[to + copy.rows..to + PAGE_TOKENS].fill(u64::MAX);
        }
    }

    pub(super) fn save(&self, page: u32, out: &mut Vec<u8>) {
        let cells = &self.0[page as usize * PAGE_TOKENS..][..PAGE_TOKENS];
        out.extend(cells.iter().flat_map(|cell| cell.to_le_bytes()));
    }

    pub(super) fn load(&mut self, page: u32, bytes: &mut &[u8]) -> Result<()> {
        let Some((head, rest)) = bytes.split_at_checked(PAGE_TOKENS * 8) else {
            return Err(Error::Corrupt(format!(
                "a page of {} bytes, expected {}: save it again",
                bytes.len(),
                PAGE_TOKENS * 8
            )));
        };
        let cells = &mut self.0[page as usize * PAGE_TOKENS..][..PAGE_TOKENS];
        for (cell, bytes) in cells.iter_mut().zip(head.as_chunks::<8>().0) {
            *cell = u64::from_le_bytes(*bytes);
        }
        *bytes = rest;
        Ok(())
    }
}
