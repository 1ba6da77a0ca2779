//! The pool: sequences, their page lists and the free pages of the two groups.

use std::collections::HashMap;

use muse_core::contract::{KvPool, PAGE_TOKENS, PageCopy, PageCount, PageKey, PageTable, SeqId};
use muse_core::{Error, Result};

const PAGE: u32 = PAGE_TOKENS as u32;

/// Sizes of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// Pages of the full group.
    pub full_pages: usize,
    /// Pages of the window group.
    pub window_pages: usize,
    /// Farthest distance back, inclusive, that the next position still sees in the window group.
    pub reach: u32,
    /// The most rows that a step writes past the length of a sequence.
    pub block: u32,
}

/// Pages of two groups and who holds them.
pub struct Pool {
    options: PoolOptions,
    full: Vec<u32>,
    window: Vec<u32>,
    seqs: HashMap<SeqId, Seq>,
}

#[derive(Default)]
struct Seq {
    len: u32,
    full: Vec<u32>,
    window: Vec<u32>,
    window_base: u32,
}

impl Pool {
    /// A pool with all pages free.
    pub fn new(options: PoolOptions) -> Self {
        // Low numbers go out first: a lightly used cache stays in few pages of memory.
        let free = |pages: usize| (0..pages as u32).rev().collect();
        Self {
            full: free(options.full_pages),
            window: free(options.window_pages),
            options,
            seqs: HashMap::new(),
        }
    }

    fn seq(&self, seq: SeqId) -> &Seq {
        self.seqs.get(&seq).unwrap_or_else(|| panic!("sequence {} is not open", seq.0))
    }
}

fn pages_for(rows: u32) -> usize {
    rows.div_ceil(PAGE) as usize
}

impl KvPool for Pool {
    fn open(&mut self, seq: SeqId, _prompt: &[PageKey]) -> Result<u32> {
        let before = self.seqs.insert(seq, Seq::default());
        assert!(before.is_none(), "sequence {} is already open", seq.0);
        Ok(0)
    }

    fn reserve(&mut self, seq: SeqId, end: u32, _copies: &mut Vec<PageCopy>) -> Result<()> {
        let state = self.seqs.get_mut(&seq).expect("an open sequence");
        let full = pages_for(end).saturating_sub(state.full.len());
        let window = pages_for(end - state.window_base).saturating_sub(state.window.len());
        if full > self.full.len() || window > self.window.len() {
            return Err(Error::Exhausted(format!(
                "positions up to {end} need {full} full and {window} window pages more, {} and {} \
                 are free: retry when other requests have ended",
                self.full.len(),
                self.window.len()
            )));
        }
        state.full.extend(self.full.drain(self.full.len() - full..).rev());
        state.window.extend(self.window.drain(self.window.len() - window..).rev());
        Ok(())
    }

    fn commit(&mut self, seq: SeqId, keys: &[PageKey]) {
        let state = self.seqs.get_mut(&seq).expect("an open sequence");
        state.len += keys.len() as u32;
        assert!(pages_for(state.len) <= state.full.len(), "committed rows were reserved");
        let oldest = state.len.saturating_sub(self.options.reach) / PAGE * PAGE;
        let gone = (oldest - state.window_base) / PAGE;
        self.window.extend(state.window.drain(..gone as usize));
        state.window_base = oldest;
    }

    fn truncate(&mut self, seq: SeqId, len: u32) {
        let state = self.seqs.get_mut(&seq).expect("an open sequence");
        assert!(len <= state.len, "truncated to {len}, the length is {}", state.len);
        assert!(
            len.saturating_sub(self.options.reach) >= state.window_base,
            "truncated to {len}, but window pages before {} are gone",
            state.window_base
        );
        state.len = len;
        self.full.extend(state.full.drain(pages_for(len)..));
        self.window.extend(state.window.drain(pages_for(len - state.window_base)..));
    }

    fn len(&self, seq: SeqId) -> u32 {
        self.seq(seq).len
    }

    fn pages(&self, seq: SeqId) -> PageTable<'_> {
        let state = self.seq(seq);
        PageTable { full: &state.full, window: &state.window, window_base: state.window_base }
    }

    fn close(&mut self, seq: SeqId) {
        let state = self.seqs.remove(&seq).expect("an open sequence");
        self.full.extend(state.full);
        self.window.extend(state.window);
    }

    fn free(&self) -> PageCount {
        PageCount { full: self.full.len(), window: self.window.len() }
    }

    fn total(&self) -> PageCount {
        PageCount { full: self.options.full_pages, window: self.options.window_pages }
    }

    fn worst_case(&self, rows: u32) -> PageCount {
        // A run of n positions touches one page more than it fills when it begins late in one.
        let span = self.options.reach.saturating_add(self.options.block);
        let window = span.div_ceil(PAGE) as usize + 1;
        PageCount { full: pages_for(rows), window: pages_for(rows).min(window) }
    }
}
