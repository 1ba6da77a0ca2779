//! Reads `text_config` of config.json.

use muse_core::contract::{LayerSpec, TextSpec};

use super::object::Object;
use crate::error::Result;
use crate::settings::{Settings, check_heads, max};

pub(super) fn spec(section: &Object) -> Result<TextSpec> {
    refuse_variants(section)?;
    let heads = section.size("num_attention_heads", max::HEADS)?;
    let kv_heads = section.size("num_key_value_heads", max::HEADS)?;
    let head_dim = section.size("head_dim", max::HEAD_DIM)?;
    check_heads(
        section,
        ("num_attention_heads", heads),
        ("num_key_value_heads", kv_heads),
        ("head_dim", head_dim),
    )?;
    Ok(TextSpec {
        hidden: section.size("hidden_size", max::WIDTH)?,
        ffn: section.size("intermediate_size", max::WIDTH)?,
        heads,
        kv_heads,
        head_dim,
        vocab: section.size("vocab_size", max::VOCAB)?,
        layers: layer_specs(section)?,
        norm_eps: section.positive("rms_norm_eps", 1.0)?,
        post_norm_eps: section.positive("post_norm_eps", 1.0)?,
        rope_theta: section.rope_theta(&["default"])?,
        logit_scale: section.positive("output_multiplier", 1e6)?,
        logit_softcap: section.softcap("final_logit_softcapping")?,
        max_positions: section.size("max_position_embeddings", max::POSITIONS)?,
        image_token: None,
    })
}

/// Refuses settings that would change the numbers and that this build does not implement.
fn refuse_variants(section: &Object) -> Result<()> {
    section.only("hidden_activation", &["silu"])?;
    for (key, why) in [
        ("attention_bias", "false: the model has no biases"),
        ("tie_word_embeddings", "false: the LM head has a matrix of its own"),
    ] {
        if section.boolean(key)? == Some(true) {
            return Err(section.variant(key, "true", why));
        }
    }
    Ok(())
}

/// The window and the rope of each layer, from two independent arrays. Where one is absent, every
/// fourth layer counted backward from the last has full attention and no rope.
fn layer_specs(section: &Object) -> Result<Vec<LayerSpec>> {
    let layers = section.layer_count()?;
    let kind = |value: &serde_json::Value| match value.as_str()? {
        "full_attention" => Some(false),
        "sliding_attention" => Some(true),
        _ => None,
    };
    let default: Vec<bool> = (0..layers).map(|layer| (layers - 1 - layer) % 4 != 0).collect();
    let sliding = section.per_layer(
        "layer_types",
        "`full_attention` and `sliding_attention`",
        layers,
        kind,
    )?;
    let theta = |value: &serde_json::Value| match value {
        serde_json::Value::Null => Some(false),
        value => value.as_f64().map(|theta| theta != 0.0),
    };
    let rope = section.per_layer("layer_rope_theta", "numbers", layers, theta)?;
    let sliding = sliding.unwrap_or_else(|| default.clone());
    let rope = rope.unwrap_or(default);
    let window = if sliding.contains(&true) {
        Some(section.size("sliding_window", max::POSITIONS)? as u32)
    } else {
        None
    };
    let layer = |(sliding, rope): (bool, bool)| LayerSpec {
        window: if sliding { window } else { None },
        rope,
    };
    Ok(sliding.into_iter().zip(rope).map(layer).collect())
}
