//! Checkpoints of a real width with random weights, to measure speed on: any number of layers, every
//! matrix in one format.

mod blocks;
mod tower;
mod vocabulary;

use std::path::Path;

use anyhow::Result;
use muse_core::contract::{LayerSpec, TextSpec};
use muse_core::quant::Format;
use muse_weights::{GgufKeys, GgufTensor, GgufWriter};

pub use blocks::Blocks;
pub use tower::{RandomTower, tower_shape};

/// Factor on normed queries.
const QUERY_SCALE: f32 = 3.87;
/// Bytes that are made at a time.
const PIECE: usize = 1 << 22;

/// The published model's shape with so many layers.
pub fn shape(layers: usize) -> TextSpec {
    let layer = |i| {
        let sliding = i % 4 != 3;
        LayerSpec { window: sliding.then_some(2048), rope: sliding }
    };
    TextSpec {
        hidden: 6656,
        ffn: 19968,
        heads: 32,
        kv_heads: 2,
        head_dim: 128,
        vocab: 202_048,
        layers: (0..layers).map(layer).collect(),
        norm_eps: 1e-5,
        post_norm_eps: 1e-8,
        rope_theta: 500_000.0,
        logit_scale: 26_f32.sqrt().recip(),
        logit_softcap: Some(20.0),
        max_positions: 131_072,
        image_token: None,
    }
}

/// Writes a GGUF file of that shape: matrices and embedding in `body`, the head in `head`, norms of
/// 1. Says its bytes.
///
/// # Errors
/// When the file cannot be written, or the shape has too few tokens for a vocabulary.
///
/// # Panics
/// When the rows are not whole blocks of the formats.
pub fn write(spec: &TextSpec, body: Format, head: Format, out: &Path) -> Result<u64> {
    let mut keys = GgufKeys::new();
    keys.set("general.type", "model");
    keys.set("general.name", &format!("wide-{}", spec.layers.len()));
    keys.set_text(spec)?;
    vocabulary::set(spec.vocab, &mut keys)?;
    let tensors = GgufTensor::of_text(spec, body, head);
    let mut writer = GgufWriter::create(out, &keys, &tensors)?;
    let mut piece = vec![0; PIECE];
    for (seed, tensor) in (0..).zip(&tensors) {
        if tensor.shape.len() == 1 {
            let value = if tensor.name.contains("attn_q_norm") { QUERY_SCALE } else { 1.0 };
            writer.write(&value.to_le_bytes().repeat(tensor.shape[0]))?;
            continue;
        }
        let mut blocks = Blocks::new(tensor.format, seed);
        let whole = PIECE / tensor.format.block_bytes() * tensor.format.block_bytes();
        let mut left = tensor.bytes();
        while left > 0 {
            let bytes = &mut piece[..whole.min(left)];
            blocks.fill(bytes);
            writer.write(bytes)?;
            left -= bytes.len();
        }
    }
    Ok(writer.finish()?)
}
