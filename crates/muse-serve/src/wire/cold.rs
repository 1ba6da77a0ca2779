//! A pool in which no request finds what earlier ones left: every prompt runs whole, for timing.

use muse_core::Result;
use muse_core::contract::{
    BlockCopy, BlockCount, BlockTable, KvOffload, KvPool, PositionKey, SeqId,
};
use muse_kv::Pool;

/// A pool whose sequences begin empty.
pub(super) struct Cold(pub(super) Pool);

impl KvPool for Cold {
    fn open(&mut self, seq: SeqId, _prompt: &[PositionKey]) -> Result<u32> {
        self.0.open(seq, &[])
    }

    fn reserve(&mut self, seq: SeqId, end: u32, copies: &mut Vec<BlockCopy>) -> Result<()> {
        self.0.reserve(seq, end, copies)
    }

    fn commit(&mut self, seq: SeqId, keys: &[PositionKey]) {
        self.0.commit(seq, keys);
    }

    fn truncate(&mut self, seq: SeqId, len: u32) {
        self.0.truncate(seq, len);
    }

    fn len(&self, seq: SeqId) -> u32 {
        self.0.len(seq)
    }

    fn block_table(&self, seq: SeqId) -> BlockTable<'_> {
        self.0.block_table(seq)
    }

    fn close(&mut self, seq: SeqId) {
        self.0.close(seq);
    }

    fn free(&self) -> BlockCount {
        self.0.free()
    }

    fn total(&self) -> BlockCount {
        self.0.total()
    }

    fn worst_case(&self, rows: u32) -> BlockCount {
        self.0.worst_case(rows)
    }

    fn offload(&mut self) -> Option<&mut dyn KvOffload> {
        None
    }
}
