//! What a drafter is built with, what its configuration must promise, and what its KV blocks cost.

use muse_core::contract::{DrafterSpec, KvGroup, KvShape, KvType, TextSpec};
use muse_core::model::check_kv;
use muse_core::{Error, Result};

/// Sizes that a drafter is built with; everything is allocated once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DflashOptions {
    /// How K and V are stored.
    pub kv: KvType,
    /// KV blocks of the window group.
    pub window_blocks: usize,
    /// Blocks that are guessed in one pass; more are taken in turns.
    pub max_anchors: usize,
    /// Rows that are absorbed in one pass; more are taken in turns.
    pub max_num_batched_tokens: usize,
}

/// What a KV block of the window group costs, over all layers, when K and V are stored as `kv`.
pub fn block_bytes(spec: &DrafterSpec, kv: KvType) -> usize {
    spec.layers * kv_shape(spec, kv, 1).block_bytes()
}

pub(crate) fn kv_shape(spec: &DrafterSpec, kind: KvType, blocks: usize) -> KvShape {
    let group = KvGroup::Window;
    KvShape { group, blocks, kv_heads: spec.kv_heads, head_dim: spec.head_dim, kind }
}

/// Refuses what the operations could not compute and what does not belong to the target.
pub(crate) fn check(spec: &DrafterSpec, target: &TextSpec, options: &DflashOptions) -> Result<()> {
    let corrupt = |what: String| Err(Error::Corrupt(format!("drafter: {what}")));
    let dims = [spec.ffn, spec.heads, spec.kv_heads, spec.head_dim, spec.layers];
    if dims.contains(&0) {
        return corrupt(format!(
            "ffn, heads, K/V heads, head width and layers are {dims:?}; none may be 0, the \
             configuration is damaged"
        ));
    }
    if !spec.heads.is_multiple_of(spec.kv_heads) || !spec.head_dim.is_multiple_of(2) {
        return corrupt(format!(
            "{} heads of width {} over {} K/V heads; the heads must be a multiple of the K/V heads \
             and the width even, the configuration is damaged",
            spec.heads, spec.head_dim, spec.kv_heads
        ));
    }
    if spec.block < 2 || spec.target_layers.is_empty() {
        return corrupt(format!(
            "a block of {} rows that reads {} layers of the large model; it needs 2 rows and a \
             layer, the configuration is damaged",
            spec.block,
            spec.target_layers.len()
        ));
    }
    check_kv(options.kv, spec.head_dim)?;
    let foreign = |what: String| {
        Err(Error::Invalid(format!("{what}; use the drafter that belongs to this model")))
    };
    if spec.hidden != target.hidden {
        return foreign(format!(
            "the drafter's hidden width is {}, the model's is {}",
            spec.hidden, target.hidden
        ));
    }
    if let Some(layer) = spec.target_layers.iter().find(|&&l| l >= target.layers.len()) {
        return foreign(format!(
            "the drafter reads layer {layer}, the model has layers 0 to {}",
            target.layers.len().saturating_sub(1)
        ));
    }
    if spec.mask_token as usize >= target.vocab {
        return foreign(format!(
            "the drafter's mask token is {}, the model's vocabulary ends at {}",
            spec.mask_token, target.vocab
        ));
    }
    Ok(())
}
