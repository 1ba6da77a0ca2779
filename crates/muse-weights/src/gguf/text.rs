//! Reads the keys of a text model.

use muse_core::contract::{LayerSpec, TextSpec};

use super::Keys;
use super::header::Value;
use crate::error::Result;
use crate::settings::{Settings, check_heads, max};

/// Epsilon of the norms after attention and after the feed-forward. It is a constant of the
/// architecture: GGUF has no key for it.
pub(crate) const POST_NORM_EPS: f32 = 1e-8;
/// One layer in four has full attention when the file has no pattern.
const DEFAULT_PERIOD: u64 = 4;

pub(super) fn spec(keys: Keys<'_>, vocab_rows: Option<usize>) -> Result<TextSpec> {
    let Attention { hidden, ffn, heads, kv_heads, head_dim, layers } = attention(keys)?;
    let theta = keys.positive("rope.freq_base", 1e12)?;
    let vocab = match keys.optional_size("vocab_size", max::VOCAB)? {
        Some(vocab) => vocab,
        None => vocab_rows.filter(|&rows| rows <= max::VOCAB).ok_or_else(|| {
            keys.wrong("vocab_size", "nothing", "it, or the tensor `token_embd.weight`")
        })?,
    };
    let Some(logit_scale) = keys.optional_positive("logit_scale", 1e6)? else {
        return Err(keys.wrong(
            "logit_scale",
            "nothing",
            "the factor on the output of the LM head",
        ));
    };
    Ok(TextSpec {
        hidden,
        ffn,
        heads,
        kv_heads,
        head_dim,
        vocab,
        layers: layer_specs(keys, layers)?,
        norm_eps: keys.positive("attention.layer_norm_rms_epsilon", 1.0)?,
        post_norm_eps: POST_NORM_EPS,
        rope_theta: keys.optional_positive("rope.freq_base_swa", 1e12)?.unwrap_or(theta),
        logit_scale,
        logit_softcap: keys.softcap("final_logit_softcapping")?,
        max_positions: keys.size("context_length", max::POSITIONS)?,
        image_token: None,
    })
}

/// Settings that the text model and the drafter keep under the same keys.
pub(super) struct Attention {
    pub(super) hidden: usize,
    pub(super) ffn: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) layers: usize,
}

pub(super) fn attention(keys: Keys<'_>) -> Result<Attention> {
    const HEADS: &str = "attention.head_count";
    const KV_HEADS: &str = "attention.head_count_kv";
    const HEAD_DIM: &str = "attention.key_length";
    let hidden = keys.size("embedding_length", max::WIDTH)?;
    let heads = keys.size(HEADS, max::HEADS)?;
    let kv_heads = keys.optional_size(KV_HEADS, max::HEADS)?.unwrap_or(heads);
    let head_dim = match keys.optional_size(HEAD_DIM, max::HEAD_DIM)? {
        Some(width) => width,
        None if hidden.is_multiple_of(heads) && hidden / heads <= max::HEAD_DIM => hidden / heads,
        None => return Err(keys.wrong(HEAD_DIM, "nothing", "the head dimension")),
    };
    check_heads(&keys, (HEADS, heads), (KV_HEADS, kv_heads), (HEAD_DIM, head_dim))?;
    for key in ["attention.value_length", "rope.dimension_count"] {
        match keys.optional_size(key, max::HEAD_DIM)? {
            Some(width) if width != head_dim => {
                let expected = format!("{head_dim}, as `{HEAD_DIM}`");
                return Err(keys.variant(key, width, expected));
            }
            _ => {}
        }
    }
    keys.only("rope.scaling.type", &["none"])?;
    Ok(Attention {
        hidden,
        ffn: keys.size("feed_forward_length", max::WIDTH)?,
        heads,
        kv_heads,
        head_dim,
        layers: keys.size("block_count", max::LAYERS)?,
    })
}

/// Layers with a sliding window use rope, layers with full attention do not: GGUF has one pattern
/// for both.
fn layer_specs(keys: Keys<'_>, layers: usize) -> Result<Vec<LayerSpec>> {
    let sliding =
        sliding_layers(keys, layers)?.unwrap_or_else(|| by_period(DEFAULT_PERIOD, layers));
    let window = if sliding.contains(&true) {
        Some(keys.size("attention.sliding_window", max::POSITIONS)? as u32)
    } else {
        None
    };
    let layer = |sliding| LayerSpec { window: if sliding { window } else { None }, rope: sliding };
    Ok(sliding.into_iter().map(layer).collect())
}

/// Which layers have a sliding window: an array with one entry per layer, or the period of the
/// layers with full attention.
pub(super) fn sliding_layers(keys: Keys<'_>, layers: usize) -> Result<Option<Vec<bool>>> {
    const KEY: &str = "attention.sliding_window_pattern";
    match keys.value(KEY) {
        None => Ok(None),
        Some(Value::Array { count, .. }) if *count != layers => {
            let found = format!("an array of {count}");
            Err(keys.wrong(KEY, found, format!("{layers}, one per layer, or a period")))
        }
        Some(Value::Array { .. }) => {
            let array = keys.integers(KEY)?.unwrap_or_default();
            Ok(Some(array.into_iter().map(|sliding| sliding != 0).collect()))
        }
        Some(_) => Ok(keys.integer(KEY)?.map(|period| by_period(period, layers))),
    }
}

/// The last of every `period` layers has full attention; with period 0 none has.
fn by_period(period: u64, layers: usize) -> Vec<bool> {
    (0..layers as u64).map(|layer| period == 0 || layer % period < period - 1).collect()
}
