//! The vision section of config.json, and what preprocessor_config.json must agree to.

use muse_core::contract::VisionSpec;

use super::Object;
use super::config::{layer_list, layers, rope_theta};
use crate::error::Result;
use crate::settings::{Settings, check_tower, most};

pub(super) fn spec(config: &Object, section: &Object, out: usize) -> Result<VisionSpec> {
    section.only("hidden_act", &["gelu"])?;
    config.only("projector_hidden_act", &["gelu"])?;
    let layers = layers(section)?;
    let kind = |value: &serde_json::Value| match value.as_str()? {
        "full_attention" => Some(true),
        "window_attention" => Some(false),
        _ => None,
    };
    let what = "`full_attention` and `window_attention`";
    let full_layers = layer_list(section, "layer_types", what, layers, kind)?;
    let spec = VisionSpec {
        hidden: section.size("hidden_size", most::WIDTH)?,
        ffn: section.size("intermediate_size", most::WIDTH)?,
        heads: section.size("num_attention_heads", most::HEADS)?,
        full_layers: full_layers.unwrap_or_else(|| default_full_layers(layers)),
        patch: section.size("patch_size", most::SIDE)?,
        temporal: section.size("patch_temporal", 16)?,
        merge: section.size("merge_size", 16)?,
        table: (
            section.size("pos_emb_height", most::SIDE)?,
            section.size("pos_emb_width", most::SIDE)?,
        ),
        norm_eps: section.positive("layer_norm_eps", 1.0)?,
        rope_theta: rope_theta(section, &["default", "axial"])?,
        projector: config.size("projector_hidden_size", most::WIDTH)?,
        out,
    };
    check_tower(section, ("num_attention_heads", spec.heads), ("hidden_size", spec.hidden))?;
    let merged = spec.hidden * spec.merge * spec.merge;
    match config.maybe_size("out_hidden_size", most::WIDTH)? {
        Some(width) if width != merged => {
            let expected = format!("{merged}, the width of {0}x{0} patches", spec.merge);
            Err(config.wrong("out_hidden_size", width, expected))
        }
        _ => Ok(spec),
    }
}

/// Every fourth layer and the last see the whole picture.
pub(crate) fn default_full_layers(layers: usize) -> Vec<bool> {
    (1..=layers).map(|layer| layer % 4 == 0 || layer == layers).collect()
}

/// Pixels are brought to -1..1 and cut into patches as the tower expects.
pub(super) fn check_pixels(preprocessor: &Object, spec: &VisionSpec) -> Result<()> {
    for key in ["image_mean", "image_std"] {
        let values = preprocessor.list(key, "numbers", serde_json::Value::as_f64)?;
        if values.is_some_and(|values| values != [0.5; 3]) {
            return Err(preprocessor.variant(key, "other values", "0.5 for all three channels"));
        }
    }
    for (key, size) in [
        ("patch_size", spec.patch),
        ("temporal_patch_size", spec.temporal),
        ("merge_size", spec.merge),
    ] {
        match preprocessor.maybe_size(key, most::SIDE)? {
            Some(found) if found != size => {
                let expected = format!("{size}, as vision_config of config.json says");
                return Err(preprocessor.wrong(key, found, expected));
            }
            _ => {}
        }
    }
    Ok(())
}
