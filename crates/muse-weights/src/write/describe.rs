//! The keys of a model: copied from a GGUF file, or made from what a HuggingFace folder says.

use muse_core::contract::{DrafterSpec, TextSpec, VisionSpec, WeightSource};

use super::keys::GgufKeys;
use super::plan::ModelKind;
use super::vocabulary;
use crate::checkpoint::{Checkpoint, Origin};
use crate::error::{Error, Result};
use crate::gguf::POST_NORM_EPS;
use crate::hf::default_full_layers;

/// Keys that say how the copied file was stored, not what the model is.
const OF_STORAGE: &[&str] = &[
    "general.file_type",
    "general.quantization_version",
    "general.alignment",
    "split.",
    "quantize.",
];
/// The architecture and the prefix of its keys; some files spell it with an underscore.
const TEXT: &str = "muse-glimmer";
const TEXT_ALIAS: &str = "muse_glimmer";

/// All keys but those of storage.
pub(super) fn keys(
    checkpoint: &Checkpoint,
    kind: ModelKind,
    name: &str,
    vocabulary: Option<&Checkpoint>,
) -> Result<GgufKeys> {
    let mut keys = GgufKeys::new();
    match checkpoint.origin() {
        Origin::Gguf(header) => {
            for (key, encoded) in checkpoint.encoded_keys(header) {
                if !OF_STORAGE.iter().any(|storage| key.starts_with(storage)) {
                    keys.set_encoded(&plain(key), encoded.to_vec());
                }
            }
            if kind == ModelKind::Text {
                keys.set("general.architecture", TEXT);
            }
        }
        Origin::HuggingFace { .. } => describe(checkpoint, kind, name, vocabulary, &mut keys)?,
    }
    if let Some(vocabulary) = vocabulary {
        vocabulary::copy(vocabulary, &mut keys)?;
    }
    Ok(keys)
}

fn plain(key: &str) -> String {
    match key.strip_prefix(TEXT_ALIAS) {
        Some(rest) if rest.starts_with('.') => format!("{TEXT}{rest}"),
        _ => key.to_owned(),
    }
}

fn describe(
    checkpoint: &Checkpoint,
    kind: ModelKind,
    name: &str,
    vocabulary: Option<&Checkpoint>,
    keys: &mut GgufKeys,
) -> Result<()> {
    const HAS_IT: &str = "the caller asked for a model the checkpoint has";
    let spec = checkpoint.spec();
    keys.set("general.type", if kind == ModelKind::Vision { "mmproj" } else { "model" });
    keys.set("general.name", name);
    match kind {
        ModelKind::Text => keys.set_text(spec.text.as_ref().expect(HAS_IT))?,
        ModelKind::Drafter => {
            let spec = spec.drafter.as_ref().expect(HAS_IT);
            let target = vocabulary.and_then(|target| target.spec().text.as_ref());
            drafter(spec, target, keys);
        }
        ModelKind::Vision => vision(spec.vision.as_ref().expect(HAS_IT), keys)?,
    }
    if kind != ModelKind::Vision {
        vocabulary::copy(checkpoint, keys)?;
    }
    if let (ModelKind::Drafter, Some(spec)) = (kind, &spec.drafter) {
        keys.set("tokenizer.ggml.mask_token_id", &spec.mask_token);
    }
    Ok(())
}

/// What text models and drafters name alike.
struct Attention {
    layers: usize,
    hidden: usize,
    ffn: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    norm_eps: f32,
    rope_theta: f32,
}

impl Attention {
    fn describe(&self, prefix: &str, keys: &mut GgufKeys) {
        for (key, value) in [
            ("block_count", self.layers),
            ("embedding_length", self.hidden),
            ("feed_forward_length", self.ffn),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.kv_heads),
            ("attention.key_length", self.head_dim),
            ("attention.value_length", self.head_dim),
        ] {
            keys.set(&format!("{prefix}.{key}"), &(value as u32));
        }
        keys.set(&format!("{prefix}.attention.layer_norm_rms_epsilon"), &self.norm_eps);
        keys.set(&format!("{prefix}.rope.freq_base"), &self.rope_theta);
    }
}

impl GgufKeys {
    /// Sets the keys of a text model: all but those of its tokenizer.
    ///
    /// # Errors
    /// When the keys of the architecture cannot say what the model is.
    pub fn set_text(&mut self, spec: &TextSpec) -> Result<()> {
        let attention = Attention {
            layers: spec.layers.len(),
            hidden: spec.hidden,
            ffn: spec.ffn,
            heads: spec.heads,
            kv_heads: spec.kv_heads,
            head_dim: spec.head_dim,
            norm_eps: spec.norm_eps,
            rope_theta: spec.rope_theta,
        };
        self.set("general.architecture", TEXT);
        attention.describe(TEXT, self);
        if spec.post_norm_eps != POST_NORM_EPS {
            let expected = format!("{POST_NORM_EPS:e}");
            return Err(unsaid("post_norm_eps", format!("{:e}", spec.post_norm_eps), &expected));
        }
        let mut key = |name: &str, n: usize| self.set(&format!("{TEXT}.{name}"), &(n as u32));
        key("context_length", spec.max_positions);
        key("vocab_size", spec.vocab);
        key("rope.dimension_count", spec.head_dim);
        let mut windows: Vec<u32> = spec.layers.iter().filter_map(|layer| layer.window).collect();
        windows.dedup();
        match windows[..] {
            [] => {}
            [window] => key("attention.sliding_window", window as usize),
            _ => return Err(unsaid("sliding_window", format!("{windows:?}"), "one window")),
        }
        let odd = spec.layers.iter().position(|layer| layer.rope != layer.window.is_some());
        if let Some(layer) = odd {
            let found = format!("layer {layer}, rotated and full or sliding and not rotated");
            return Err(unsaid("layer_rope_theta", found, "rotation in the sliding layers only"));
        }
        let sliding: Vec<bool> = spec.layers.iter().map(|layer| layer.window.is_some()).collect();
        self.set(&format!("{TEXT}.attention.sliding_window_pattern"), &sliding[..]);
        self.set(&format!("{TEXT}.logit_scale"), &spec.logit_scale);
        let cap = spec.logit_cap.unwrap_or(0.0);
        self.set(&format!("{TEXT}.final_logit_softcapping"), &cap);
        Ok(())
    }
}

/// A setting of a model that the keys of its architecture do not have.
fn unsaid(key: &str, found: String, expected: &str) -> Error {
    Error::Variant {
        file: "the new GGUF file".to_owned(),
        key: key.to_owned(),
        found,
        expected: format!("{expected}: the keys of the architecture say nothing else"),
    }
}

fn drafter(spec: &DrafterSpec, target: Option<&TextSpec>, keys: &mut GgufKeys) {
    let attention = Attention {
        layers: spec.layers,
        hidden: spec.hidden,
        ffn: spec.ffn,
        heads: spec.heads,
        kv_heads: spec.kv_heads,
        head_dim: spec.head_dim,
        norm_eps: spec.norm_eps,
        rope_theta: spec.rope_theta,
    };
    keys.set("general.architecture", "dflash");
    attention.describe("dflash", keys);
    if let Some(target) = target {
        keys.set("dflash.context_length", &(target.max_positions as u32));
        keys.set("dflash.vocab_size", &(target.vocab as u32));
    }
    keys.set("dflash.attention.sliding_window", &spec.reach);
    keys.set("dflash.attention.sliding_window_pattern", &vec![true; spec.layers][..]);
    keys.set("dflash.block_size", &(spec.block as u32));
    // Files count a layer's input, the model counts the output of the layer before.
    let layers: Vec<i32> = spec.target_layers.iter().map(|&layer| layer as i32 + 1).collect();
    keys.set("dflash.target_layers", &layers[..]);
}

fn vision(spec: &VisionSpec, keys: &mut GgufKeys) -> Result<()> {
    keys.set("general.architecture", "clip");
    if spec.full_layers != default_full_layers(spec.full_layers.len()) {
        let expected = "every fourth layer and the last full";
        return Err(unsaid("layer_types", "other full layers".to_owned(), expected));
    }
    if spec.table.0 != spec.table.1 {
        let found = format!("a position table of {} x {}", spec.table.0, spec.table.1);
        return Err(unsaid("pos_emb_height", found, "a square one"));
    }
    keys.set("clip.has_vision_encoder", &true);
    keys.set("clip.projector_type", TEXT);
    for (key, value) in [
        ("projection_dim", spec.out),
        ("image_size", spec.table.0 * spec.patch * spec.merge),
        ("patch_size", spec.patch),
        ("embedding_length", spec.hidden),
        ("feed_forward_length", spec.ffn),
        ("block_count", spec.full_layers.len()),
        ("attention.head_count", spec.heads),
        ("spatial_merge_size", spec.merge),
    ] {
        keys.set(&format!("clip.vision.{key}"), &(value as u32));
    }
    for key in ["image_mean", "image_std"] {
        keys.set(&format!("clip.vision.{key}"), &[0.5_f32; 3][..]);
    }
    keys.set("clip.vision.attention.layer_norm_epsilon", &spec.norm_eps);
    Ok(())
}
