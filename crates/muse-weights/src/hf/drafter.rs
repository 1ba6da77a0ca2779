//! Reads the config.json of a DFlash assistant.

use muse_core::contract::DrafterSpec;

use super::object::Object;
use crate::error::Result;
use crate::settings::{Settings, check_heads, check_target_layers, draft_block_size, max};

pub(super) fn spec(config: &Object) -> Result<DrafterSpec> {
    config.only("hidden_act", &["silu"])?;
    if config.boolean("attention_bias")? == Some(true) {
        return Err(config.variant("attention_bias", "true", "false: the model has no biases"));
    }
    let layers = config.layer_count()?;
    let kind = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let kinds = config.per_layer("layer_types", "attention kinds", layers, kind)?;
    if let Some(other) = kinds.into_iter().flatten().find(|kind| kind != "sliding_attention") {
        let found = format!("`{}`", crate::error::escaped(&other));
        return Err(config.variant("layer_types", found, "`sliding_attention` in every layer"));
    }
    let heads = config.size("num_attention_heads", max::HEADS)?;
    let kv_heads = config.size("num_key_value_heads", max::HEADS)?;
    let head_dim = config.size("head_dim", max::HEAD_DIM)?;
    check_heads(
        config,
        ("num_attention_heads", heads),
        ("num_key_value_heads", kv_heads),
        ("head_dim", head_dim),
    )?;
    let target_layers =
        config.array("target_layer_ids", "layer numbers", |value| value.as_u64())?;
    let mask_token = config.token("mask_token_id")?;
    Ok(DrafterSpec {
        hidden: config.size("hidden_size", max::WIDTH)?,
        ffn: config.size("intermediate_size", max::WIDTH)?,
        heads,
        kv_heads,
        head_dim,
        layers,
        norm_eps: config.positive("rms_norm_eps", 1.0)?,
        rope_theta: config.rope_theta(&["default"])?,
        reach: config.size("sliding_window", max::POSITIONS)? as u32,
        draft_block: draft_block_size(config, "block_size")?,
        mask_token: mask_token
            .ok_or_else(|| config.wrong("mask_token_id", "nothing", "a token id"))?,
        target_layers: check_target_layers(config, "target_layer_ids", target_layers, 0)?,
    })
}
