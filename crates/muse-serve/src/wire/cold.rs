//! A pool in which no request finds what earlier ones left: every prompt runs whole, for timing.

use muse_core::Result;
use muse_core::contract::{KvPool, PageCopy, PageCount, PageKey, PageTable, SeqId, Spill};
use muse_kv::Pool;

/// A pool whose sequences begin empty.
pub(super) struct Cold(pub(super) Pool);

impl KvPool for Cold {
    fn open(&mut self, seq: SeqId, _prompt: &[PageKey]) -> Result<u32> {
        self.0.open(seq, &[])
    }

    fn reserve(&mut self, seq: SeqId, end: u32, copies: &mut Vec<PageCopy>) -> Result<()> {
        self.0.reserve(seq, end, copies)
    }

    fn commit(&mut self, seq: SeqId, keys: &[PageKey]) {
        self.0.commit(seq, keys);
    }

    fn truncate(&mut self, seq: SeqId, len: u32) {
        self.0.truncate(seq, len);
    }

    fn len(&self, seq: SeqId) -> u32 {
        self.0.len(seq)
    }

    fn pages(&self, seq: SeqId) -> PageTable<'_> {
        self.0.pages(seq)
    }

    fn close(&mut self, seq: SeqId) {
        self.0.close(seq);
    }

    fn free(&self) -> PageCount {
        self.0.free()
    }

    fn total(&self) -> PageCount {
        self.0.total()
    }

    fn worst_case(&self, rows: u32) -> PageCount {
        self.0.worst_case(rows)
    }

    fn spill(&mut self) -> Option<&mut dyn Spill> {
        None
    }
}
