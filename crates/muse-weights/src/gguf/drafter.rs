//! Reads the keys of a DFlash drafter.

use muse_core::contract::DrafterSpec;

use super::Keys;
use super::text::{Attention, attention, sliding_layers};
use crate::error::Result;
use crate::settings::{Settings, check_target_layers, draft_block_size, max};

pub(super) fn spec(keys: Keys<'_>) -> Result<DrafterSpec> {
    let Attention { hidden, ffn, heads, kv_heads, head_dim, layers } = attention(keys)?;
    refuse_variants(keys, head_dim)?;
    let sliding = sliding_layers(keys, layers)?.unwrap_or_else(|| vec![true; layers]);
    if sliding.contains(&false) {
        let key = "attention.sliding_window_pattern";
        return Err(keys.variant(
            key,
            "a layer with full attention",
            "a sliding window in every layer",
        ));
    }
    let target_layers = keys.integers("target_layers")?;
    let mask = "tokenizer.ggml.mask_token_id";
    let full_keys = keys.under("");
    Ok(DrafterSpec {
        hidden,
        ffn,
        heads,
        kv_heads,
        head_dim,
        layers,
        norm_eps: keys.positive("attention.layer_norm_rms_epsilon", 1.0)?,
        rope_theta: keys.positive("rope.freq_base", 1e12)?,
        reach: keys.size("attention.sliding_window", max::POSITIONS)? as u32,
        draft_block: draft_block_size(&keys, "block_size")?,
        mask_token: full_keys.token(mask)?.ok_or_else(|| {
            full_keys.wrong(mask, "nothing", "the token that fills the draft block")
        })?,
        // GGUF gives the number of the layer whose input is read: the output of the one before.
        target_layers: check_target_layers(&keys, "target_layers", target_layers, 1)?,
    })
}

/// Refuses settings of other drafters of this architecture unless they have their neutral value.
fn refuse_variants(keys: Keys<'_>, head_dim: usize) -> Result<()> {
    keys.only("hidden_act", &["silu"])?;
    for key in ["attention.causal", "sample_from_anchor"] {
        if keys.boolean(key)? == Some(true) {
            return Err(keys.variant(key, "true", "false"));
        }
    }
    for (key, neutral) in [
        ("attention.scale", (head_dim as f64).sqrt().recip()),
        ("attention.value_scale", 1.0),
        ("embedding_scale", 1.0),
        ("logit_scale", 1.0),
        ("final_logit_softcapping", 0.0),
    ] {
        match keys.number(key)? {
            Some(found) if found != 0.0 && (found - neutral).abs() > 1e-6 => {
                return Err(keys.variant(key, found, format!("{neutral} or nothing")));
            }
            _ => {}
        }
    }
    Ok(())
}
