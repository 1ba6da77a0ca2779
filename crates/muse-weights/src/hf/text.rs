//! The text section of config.json.

use muse_core::contract::{LayerSpec, TextSpec};

use super::Object;
use super::config::{layer_list, layers, rope_theta};
use crate::error::Result;
use crate::settings::{Settings, check_heads, most};

pub(super) fn spec(section: &Object) -> Result<TextSpec> {
    refuse_variants(section)?;
    let heads = section.size("num_attention_heads", most::HEADS)?;
    let kv_heads = section.size("num_key_value_heads", most::HEADS)?;
    let head_dim = section.size("head_dim", most::HEAD_DIM)?;
    check_heads(
        section,
        ("num_attention_heads", heads),
        ("num_key_value_heads", kv_heads),
        ("head_dim", head_dim),
    )?;
    Ok(TextSpec {
        hidden: section.size("hidden_size", most::WIDTH)?,
        ffn: section.size("intermediate_size", most::WIDTH)?,
        heads,
        kv_heads,
        head_dim,
        vocab: section.size("vocab_size", most::VOCAB)?,
        layers: layer_specs(section)?,
        norm_eps: section.positive("rms_norm_eps", 1.0)?,
        post_norm_eps: section.positive("post_norm_eps", 1.0)?,
        rope_theta: rope_theta(section, &["default"])?,
        logit_scale: section.positive("output_multiplier", 1e6)?,
        logit_cap: section.cap("final_logit_softcapping")?,
        max_positions: section.size("max_position_embeddings", most::POSITIONS)?,
        image_token: None,
    })
}

/// Settings that would change the numbers and that the model does not implement.
fn refuse_variants(section: &Object) -> Result<()> {
    section.only("hidden_activation", &["silu"])?;
    for (key, why) in [
        ("attention_bias", "false: the model has no biases"),
        ("tie_word_embeddings", "false: the head has a matrix of its own"),
    ] {
        if section.flag(key)? == Some(true) {
            return Err(section.variant(key, "true", why));
        }
    }
    Ok(())
}

/// The mask and the rotation of each layer. Two independent lists; where one is absent, every
/// fourth layer counted backward from the last is full and unrotated.
fn layer_specs(section: &Object) -> Result<Vec<LayerSpec>> {
    let layers = layers(section)?;
    let kind = |value: &serde_json::Value| match value.as_str()? {
        "full_attention" => Some(false),
        "sliding_attention" => Some(true),
        _ => None,
    };
    let default: Vec<bool> = (0..layers).map(|layer| (layers - 1 - layer) % 4 != 0).collect();
    let sliding = layer_list(
        section,
        "layer_types",
        "`full_attention` and `sliding_attention`",
        layers,
        kind,
    )?;
    let theta = |value: &serde_json::Value| match value {
        serde_json::Value::Null => Some(false),
        value => value.as_f64().map(|theta| theta != 0.0),
    };
    let rope = layer_list(section, "layer_rope_theta", "numbers", layers, theta)?;
    let sliding = sliding.unwrap_or_else(|| default.clone());
    let rope = rope.unwrap_or(default);
    let window = if sliding.contains(&true) {
        Some(section.size("sliding_window", most::POSITIONS)? as u32)
    } else {
        None
    };
    let layer = |(sliding, rope): (bool, bool)| LayerSpec {
        window: if sliding { window } else { None },
        rope,
    };
    Ok(sliding.into_iter().zip(rope).map(layer).collect())
}
