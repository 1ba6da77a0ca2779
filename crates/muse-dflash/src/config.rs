//! What a drafter takes of a device, and the checks of its configuration.

use muse_core::contract::{
    BlockBytes, DrafterSpec, Footprint, KvGroup, KvShape, KvType, ModelSizes, TextSpec,
};
use muse_core::model::check_kv;
use muse_core::{Error, Result};

use crate::forward;

/// What a drafter takes of a device.
#[derive(Clone, Copy, Debug)]
pub struct DflashFootprint<'a> {
    /// The drafter.
    pub spec: &'a DrafterSpec,
    /// Vocabulary of the target model.
    pub vocab: usize,
}

impl Footprint for DflashFootprint<'_> {
    fn block_bytes(&self, kv: KvType) -> BlockBytes {
        let window = self.spec.layers * kv_shape(self.spec, kv, 1).block_bytes();
        BlockBytes { full: 0, window }
    }

    fn scratch_bytes(&self, sizes: &ModelSizes) -> usize {
        forward::scratch_bytes(self.spec, self.vocab, sizes)
    }

    fn window_reach(&self) -> u32 {
        self.spec.reach
    }
}

pub(crate) fn kv_shape(spec: &DrafterSpec, kind: KvType, blocks: usize) -> KvShape {
    let group = KvGroup::Window;
    KvShape { group, blocks, kv_heads: spec.kv_heads, head_dim: spec.head_dim, kind }
}

/// Refuses configurations that the backend's operations cannot compute, and drafters of another
/// target model.
pub(crate) fn check(spec: &DrafterSpec, target: &TextSpec, sizes: &ModelSizes) -> Result<()> {
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
    if spec.draft_block < 2 || spec.target_layers.is_empty() {
        return corrupt(format!(
            "a draft block of {} tokens that reads {} layers of the target model; it needs 2 \
             tokens and a layer, the configuration is damaged",
            spec.draft_block,
            spec.target_layers.len()
        ));
    }
    check_kv(sizes.kv, spec.head_dim)?;
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
