//! Sizes that models are built with and the memory they take, known before anything is loaded.

use super::backend::KvType;
use super::sequence::BlockCount;

/// Sizes that a target model and its drafter are built with; everything is allocated once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelSizes {
    /// How K and V are stored.
    pub kv: KvType,
    /// KV blocks of each group.
    pub blocks: BlockCount,
    /// The most sequences of a step. A drafter drafts more of them in several passes.
    pub max_num_seqs: usize,
    /// The most tokens of a pass. A drafter takes a longer context in several passes.
    pub max_num_batched_tokens: usize,
    /// The most tokens of a pass whose logits can be had.
    pub max_logits_rows: usize,
}

/// Bytes that one KV block of each group takes, over all layers of the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockBytes {
    /// Of the full group.
    pub full: usize,
    /// Of the window group.
    pub window: usize,
}

/// What a target model or a drafter takes of a device beside its weights, computed from its
/// configuration. The weights come to the sum of [`super::Backend::weight_bytes`].
pub trait Footprint {
    /// Bytes of a KV block of each group when K and V are stored as `kv`.
    fn block_bytes(&self, kv: KvType) -> BlockBytes;
    /// Bytes of the buffers of a pass, of logits and of captured hidden states, deferred ones
    /// included.
    fn scratch_bytes(&self, sizes: &ModelSizes) -> usize;
    /// How many positions back the next one attends to in the window group (inclusive distance);
    /// 0 when no layer is in it.
    fn window_reach(&self) -> u32;
}
