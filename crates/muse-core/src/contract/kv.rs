//! The KV cache: which block belongs to which sequence, KV offload, and the bytes behind block
//! numbers.

use std::ops::Range;

use super::backend::Backend;
use super::sequence::{BlockCopy, BlockCount, BlockTable, KvGroup, PositionKey, SeqId};
use crate::Result;
use crate::hash::hash64;

/// The KV block allocator with its prefix cache. Knows sequences and block numbers, never bytes.
///
/// A sequence has a length, the number of its committed positions, and blocks reserved past it. A
/// step reserves positions, runs their tokens, and commits those that stay.
pub trait KvPool: Send {
    /// Starts a sequence. Returns how many leading positions of `prompt` are already cached, which
    /// is its length. Never all: the last token must run for its logits.
    fn open(&mut self, seq: SeqId, prompt: &[PositionKey]) -> Result<u32>;
    /// Makes positions up to `end` writable. Appends the copies of shared blocks that must be made
    /// before the step runs. [`crate::Error::Exhausted`] changes nothing.
    fn reserve(&mut self, seq: SeqId, end: u32, copies: &mut Vec<BlockCopy>) -> Result<()>;
    /// Commits the next `keys.len()` positions, which were written. Blocks that left the window are
    /// freed.
    fn commit(&mut self, seq: SeqId, keys: &[PositionKey]);
    /// Removes the positions from `len` on and frees the blocks past it, reserved ones included.
    fn truncate(&mut self, seq: SeqId, len: u32);
    /// Committed positions.
    fn len(&self, seq: SeqId) -> u32;
    /// Its blocks, reserved ones included.
    fn block_table(&self, seq: SeqId) -> BlockTable<'_>;
    /// Ends a sequence. Its committed positions may be reused until they are evicted.
    fn close(&mut self, seq: SeqId);
    /// Blocks that can be reserved, evictable ones included.
    fn free(&self) -> BlockCount;
    /// All blocks.
    fn total(&self) -> BlockCount;
    /// The most blocks that a sequence of `positions` positions holds at one time.
    fn worst_case(&self, positions: u32) -> BlockCount;
    /// KV offload, when the pool was built with it.
    fn offload(&mut self) -> Option<&mut dyn KvOffload>;
}

/// The part of a pool that names the blocks to offload and takes them back. Only complete blocks
/// are offloaded.
pub trait KvOffload {
    /// Appends the blocks that were evicted since the last call. Their bytes are valid until the
    /// next copy, load or pass.
    fn evicted(&mut self, out: &mut Vec<PrefixBlock>);
    /// Appends every complete block of closed sequences, least recently used first.
    fn cached(&self, out: &mut Vec<PrefixBlock>);
    /// The first complete block of `prompt` that is not in the cache, and its positions. The last
    /// position of a prompt is not part of it: it runs in any case.
    fn missing(&self, prompt: &[PositionKey]) -> Option<(PrefixHash, Range<usize>)>;
    /// Allocates the block that [`KvOffload::missing`] named, with a window block if `window`. It
    /// counts as cached from now on: the caller must load its bytes. None when no block can be
    /// freed for it.
    fn allocate_missing(&mut self, prompt: &[PositionKey], window: bool) -> Option<PrefixBlock>;
}

/// Stores KV blocks outside the cache, under the hash of the prefix they end. It may drop any of
/// them.
pub trait KvOffloadStore: Send + Sync {
    /// Hash of the empty prefix. It differs between models and settings whose blocks differ.
    fn root(&self) -> PrefixHash;
    /// Stores the bytes of a block. Returns at once; blocks that come faster than they can be
    /// written are dropped.
    fn put(&self, hash: PrefixHash, bytes: &[u8]);
    /// Waits until the blocks that were put are stored.
    fn flush(&self);
    /// Replaces `out` by the bytes stored under a hash. False when there are none.
    fn get(&self, hash: PrefixHash, out: &mut Vec<u8>) -> bool;
}

/// A complete KV block of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixBlock {
    /// Hash of the prefix that it ends.
    pub hash: PrefixHash,
    /// Its block of the full group.
    pub full: u32,
    /// Its block of the window group, if it is cached.
    pub window: Option<u32>,
}

/// 128-bit hash of all positions from the first to the end of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PrefixHash(pub [u64; 2]);

impl PrefixHash {
    /// The hash of this prefix extended by `keys`.
    pub fn extend(self, keys: &[PositionKey]) -> Self {
        let mut lanes = self.0;
        let mut take = |word: u64| {
            // Two hashes with different salts: 128 bits in all.
            lanes[0] = hash64(lanes[0] ^ 0x6b65_7973, word);
            lanes[1] = hash64(lanes[1] ^ 0x726f_7773, !word);
        };
        for key in keys {
            match *key {
                PositionKey::Token(token) => take(u64::from(token.0)),
                PositionKey::ImageRow { image, row } => {
                    let (halves, _) = image.0.as_chunks::<8>();
                    halves.iter().for_each(|half| take(u64::from_le_bytes(*half)));
                    // No token has a bit this high.
                    take(u64::from(row) | 1 << 63);
                }
            }
        }
        Self(lanes)
    }
}

/// The bytes behind block numbers, over all layers of the holder.
pub trait KvBlocks<B: Backend> {
    /// Copies blocks; copies in a group that the holder does not have are skipped.
    fn copy_blocks(&mut self, copies: &[BlockCopy]) -> Result<()>;
    /// Appends the bytes of a block over all layers of the group.
    fn save_block(&self, group: KvGroup, block: u32, out: &mut Vec<u8>) -> Result<()>;
    /// Reads a block from the front of `bytes`, as [`KvBlocks::save_block`] wrote it, and advances
    /// `bytes` past it.
    fn load_block(&mut self, group: KvGroup, block: u32, bytes: &mut &[u8]) -> Result<()>;
}
