//! Reads the keys of a vision projector file; what GGUF has no key for is a constant here.

use muse_core::contract::VisionSpec;

use super::Keys;
use crate::error::Result;
use crate::hf::default_full_layers;
use crate::raw::RawTensor;
use crate::settings::{Settings, check_vision_heads, max};

const ROPE_THETA: f32 = 10_000.0;
const TEMPORAL: usize = 2;
const DEFAULT_MERGE: usize = 2;

pub(super) fn spec(keys: Keys<'_>, tensors: &[RawTensor]) -> Result<VisionSpec> {
    let allowed = ["muse-glimmer", "muse_glimmer"];
    let kind = if keys.has("projector_type") { "projector_type" } else { "vision.projector_type" };
    if !keys.has(kind) {
        return Err(keys.wrong("projector_type", "nothing", allowed[0]));
    }
    keys.only(kind, &allowed)?;
    if keys.boolean("has_vision_encoder")? == Some(false) {
        return Err(keys.wrong("has_vision_encoder", "false", "true"));
    }
    let keys = keys.under("clip.vision.");
    for key in ["image_mean", "image_std"] {
        if keys.floats(key)?.is_some_and(|values| values != [0.5; 3]) {
            return Err(keys.variant(key, "other values", "0.5 for all three channels"));
        }
    }
    let rows = |name: &str| {
        let tensor = tensors.iter().find(|tensor| tensor.name == name);
        tensor.and_then(|tensor| tensor.shape.first().copied()).unwrap_or(0)
    };
    let layers = keys.size("block_count", max::LAYERS)?;
    let spec = VisionSpec {
        hidden: keys.size("embedding_length", max::WIDTH)?,
        ffn: keys.size("feed_forward_length", max::WIDTH)?,
        heads: keys.size("attention.head_count", max::HEADS)?,
        full_layers: default_full_layers(layers),
        patch: keys.size("patch_size", max::SIDE)?,
        temporal: TEMPORAL,
        merge: keys.optional_size("spatial_merge_size", 16)?.unwrap_or(DEFAULT_MERGE),
        table: position_table(keys, rows("v.position_embd.weight"))?,
        norm_eps: keys.positive("attention.layer_norm_epsilon", 1.0)?,
        rope_theta: ROPE_THETA,
        projector: rows("mm.1.weight").min(max::WIDTH),
        out: keys.size("projection_dim", max::WIDTH)?,
    };
    let (heads, hidden) = (("attention.head_count", spec.heads), ("embedding_length", spec.hidden));
    check_vision_heads(&keys, heads, hidden)?;
    Ok(spec)
}

/// The sides of the position table, which is square: no key gives them.
fn position_table(keys: Keys<'_>, rows: usize) -> Result<(usize, usize)> {
    let side = rows.isqrt();
    if side == 0 || side * side != rows || side > max::SIDE {
        return Err(crate::Error::Tensor {
            file: keys.file.name.clone(),
            tensor: "v.position_embd.weight".to_owned(),
            found: format!("{rows} positions"),
            expected: format!("a square number, of a side from 1 to {}", max::SIDE),
        });
    }
    Ok((side, side))
}
