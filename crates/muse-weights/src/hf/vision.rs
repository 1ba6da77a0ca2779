//! Reads `vision_config` of config.json, and checks preprocessor_config.json against it.

use muse_core::contract::VisionSpec;

use super::object::Object;
use crate::error::Result;
use crate::settings::{Settings, check_vision_heads, max};

pub(super) fn spec(config: &Object, section: &Object, out: usize) -> Result<VisionSpec> {
    section.only("hidden_act", &["gelu"])?;
    config.only("projector_hidden_act", &["gelu"])?;
    let layers = section.layer_count()?;
    let kind = |value: &serde_json::Value| match value.as_str()? {
        "full_attention" => Some(true),
        "window_attention" => Some(false),
        _ => None,
    };
    let what = "`full_attention` and `window_attention`";
    let full_layers = section.per_layer("layer_types", what, layers, kind)?;
    let spec = VisionSpec {
        hidden: section.size("hidden_size", max::WIDTH)?,
        ffn: section.size("intermediate_size", max::WIDTH)?,
        heads: section.size("num_attention_heads", max::HEADS)?,
        full_layers: full_layers.unwrap_or_else(|| default_full_layers(layers)),
        patch: section.size("patch_size", max::SIDE)?,
        temporal: section.size("patch_temporal", 16)?,
        merge: section.size("merge_size", 16)?,
        table: (
            section.size("pos_emb_height", max::SIDE)?,
            section.size("pos_emb_width", max::SIDE)?,
        ),
        norm_eps: section.positive("layer_norm_eps", 1.0)?,
        rope_theta: section.rope_theta(&["default", "axial"])?,
        projector: config.size("projector_hidden_size", max::WIDTH)?,
        out,
    };
    check_vision_heads(section, ("num_attention_heads", spec.heads), ("hidden_size", spec.hidden))?;
    let merged = spec.hidden * spec.merge * spec.merge;
    match config.optional_size("out_hidden_size", max::WIDTH)? {
        Some(width) if width != merged => {
            let expected = format!("{merged}, the width of {0}x{0} patches", spec.merge);
            Err(config.wrong("out_hidden_size", width, expected))
        }
        _ => Ok(spec),
    }
}

/// Every fourth layer and the last have full attention.
pub(crate) fn default_full_layers(layers: usize) -> Vec<bool> {
    (1..=layers).map(|layer| layer % 4 == 0 || layer == layers).collect()
}

/// Refuses a preprocessor that does not scale pixels to -1..1 or cuts patches of another size.
pub(super) fn check_pixels(preprocessor: &Object, spec: &VisionSpec) -> Result<()> {
    for key in ["image_mean", "image_std"] {
        let values = preprocessor.array(key, "numbers", serde_json::Value::as_f64)?;
        if values.is_some_and(|values| values != [0.5; 3]) {
            return Err(preprocessor.variant(key, "other values", "0.5 for all three channels"));
        }
    }
    for (key, size) in [
        ("patch_size", spec.patch),
        ("temporal_patch_size", spec.temporal),
        ("merge_size", spec.merge),
    ] {
        match preprocessor.optional_size(key, max::SIDE)? {
            Some(found) if found != size => {
                let expected = format!("{size}, as vision_config of config.json says");
                return Err(preprocessor.wrong(key, found, expected));
            }
            _ => {}
        }
    }
    Ok(())
}
