//! What a text model is built with, what its configuration must promise, and how much memory its
//! KV blocks take.

use crate::contract::{KvGroup, KvShape, KvType, LayerSpec, TextSpec};
use crate::{Error, Result};

/// Sizes that a model is built with; everything is allocated once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelOptions {
    /// How K and V are stored.
    pub kv: KvType,
    /// KV blocks of the layers that see everything.
    pub full_blocks: usize,
    /// KV blocks of the sliding layers.
    pub window_blocks: usize,
    /// The most rows of a pass.
    pub max_num_batched_tokens: usize,
    /// The most rows of a pass that are scored.
    pub max_logits_rows: usize,
    /// Layers whose output is kept for a drafter, from 0.
    pub captured_layers: Vec<usize>,
}

/// Bytes that one KV block of each group takes, over all layers of the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockBytes {
    /// Of the full group.
    pub full: usize,
    /// Of the window group.
    pub window: usize,
}

/// What a KV block of each group costs when K and V are stored as `kv`.
pub fn block_bytes(spec: &TextSpec, kv: KvType) -> BlockBytes {
    let mut bytes = BlockBytes::default();
    for layer in &spec.layers {
        match group(layer) {
            KvGroup::Full => bytes.full += kv_shape(spec, layer, kv, 1).block_bytes(),
            KvGroup::Window => bytes.window += kv_shape(spec, layer, kv, 1).block_bytes(),
        }
    }
    bytes
}

pub(super) fn group(layer: &LayerSpec) -> KvGroup {
    if layer.window.is_some() { KvGroup::Window } else { KvGroup::Full }
}

pub(super) fn kv_shape(spec: &TextSpec, layer: &LayerSpec, kind: KvType, blocks: usize) -> KvShape {
    let group = group(layer);
    KvShape { group, blocks, kv_heads: spec.kv_heads, head_dim: spec.head_dim, kind }
}

/// Refuses what the operations could not compute.
pub(super) fn check(spec: &TextSpec, options: &ModelOptions) -> Result<()> {
    let corrupt = |what: String| Err(Error::Corrupt(format!("text model: {what}")));
    let dims = [spec.hidden, spec.ffn, spec.heads, spec.kv_heads, spec.head_dim, spec.vocab];
    if dims.contains(&0) || spec.layers.is_empty() {
        return corrupt(format!(
            "hidden, ffn, heads, K/V heads, head width and vocabulary are {dims:?} in {} layers; \
             none may be 0, the configuration is damaged",
            spec.layers.len()
        ));
    }
    if !spec.heads.is_multiple_of(spec.kv_heads) || !spec.head_dim.is_multiple_of(2) {
        return corrupt(format!(
            "{} heads of width {} over {} K/V heads; the heads must be a multiple of the K/V heads \
             and the width even, the configuration is damaged",
            spec.heads, spec.head_dim, spec.kv_heads
        ));
    }
    check_kv(options.kv, spec.head_dim)?;
    if let Some(layer) = options.captured_layers.iter().find(|&&layer| layer >= spec.layers.len()) {
        return Err(Error::Invalid(format!(
            "the drafter reads layer {layer}, but the model has layers 0 to {}; use the drafter that \
             belongs to this model",
            spec.layers.len() - 1
        )));
    }
    Ok(())
}

/// Refuses heads that do not divide into the blocks of a K/V format.
pub fn check_kv(kv: KvType, head_dim: usize) -> Result<()> {
    if kv == KvType::Q8_0 && !head_dim.is_multiple_of(32) {
        return Err(Error::Unsupported(format!(
            "a Q8_0 cache needs heads whose width is a multiple of 32, this model's is {head_dim}; \
             use bf16"
        )));
    }
    Ok(())
}
