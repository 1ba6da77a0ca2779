//! What a text model takes of a device, and the checks of its configuration.

use super::forward;
use crate::contract::{
    BlockBytes, BlockCount, Footprint, KvGroup, KvShape, KvType, LayerSpec, ModelSizes, TextSpec,
};
use crate::{Error, Result};

/// What a text model takes of a device.
#[derive(Clone, Copy, Debug)]
pub struct ModelFootprint<'a> {
    /// The text model.
    pub spec: &'a TextSpec,
    /// Number of layers whose hidden states are captured for a drafter.
    pub captured_layers: usize,
}

impl Footprint for ModelFootprint<'_> {
    fn block_bytes(&self, kv: KvType) -> BlockBytes {
        let mut bytes = BlockBytes::default();
        for layer in &self.spec.layers {
            let shape = kv_shape(self.spec, layer, kv, BlockCount { full: 1, window: 1 });
            match shape.group {
                KvGroup::Full => bytes.full += shape.block_bytes(),
                KvGroup::Window => bytes.window += shape.block_bytes(),
            }
        }
        bytes
    }

    fn scratch_bytes(&self, sizes: &ModelSizes) -> usize {
        forward::scratch_bytes(self.spec, sizes, self.captured_layers)
    }

    fn window_reach(&self) -> u32 {
        let windows = self.spec.layers.iter().filter_map(|layer| layer.window);
        windows.map(|window| window.saturating_sub(1)).max().unwrap_or(0)
    }
}

pub(super) fn group(layer: &LayerSpec) -> KvGroup {
    if layer.window.is_some() { KvGroup::Window } else { KvGroup::Full }
}

pub(super) fn kv_shape(
    spec: &TextSpec,
    layer: &LayerSpec,
    kind: KvType,
    blocks: BlockCount,
) -> KvShape {
    let group = group(layer);
    let blocks = match group {
        KvGroup::Full => blocks.full,
        KvGroup::Window => blocks.window,
    };
    KvShape { group, blocks, kv_heads: spec.kv_heads, head_dim: spec.head_dim, kind }
}

/// Refuses configurations that the backend's operations cannot compute.
pub(super) fn check(spec: &TextSpec, sizes: &ModelSizes, captured_layers: &[usize]) -> Result<()> {
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
    check_kv(sizes.kv, spec.head_dim)?;
    if let Some(layer) = captured_layers.iter().find(|&&layer| layer >= spec.layers.len()) {
        return Err(Error::Invalid(format!(
            "the drafter reads layer {layer}, but the model has layers 0 to {}; use the drafter that \
             belongs to this model",
            spec.layers.len() - 1
        )));
    }
    Ok(())
}

/// Refuses head widths that do not divide into the quant blocks of a K/V format.
pub fn check_kv(kv: KvType, head_dim: usize) -> Result<()> {
    if kv == KvType::Q8_0 && !head_dim.is_multiple_of(32) {
        return Err(Error::Unsupported(format!(
            "a Q8_0 KV cache needs heads whose width is a multiple of 32, this model's is {head_dim}; \
             use bf16"
        )));
    }
    Ok(())
}
