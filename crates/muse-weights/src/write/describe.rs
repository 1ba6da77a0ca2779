//! The GGUF keys of a model: copied from a GGUF file, or made from the settings of a HuggingFace
//! folder.

use muse_core::contract::{DrafterSpec, TextSpec, VisionSpec, WeightSource};

use super::keys::GgufKeys;
use super::plan::ModelKind;
use super::vocabulary;
use crate::checkpoint::{Checkpoint, Origin};
use crate::error::{Error, Result};
use crate::gguf::POST_NORM_EPS;
use crate::hf::default_full_layers;

/// Keys, or prefixes of keys, that describe how a file is stored: they are not copied.
const STORAGE_KEYS: &[&str] = &[
    "general.file_type",
    "general.quantization_version",
    "general.alignment",
    "split.",
    "quantize.",
];
/// The architecture and the prefix of its keys.
const TEXT: &str = "muse-glimmer";
/// The spelling of some files.
const TEXT_ALIAS: &str = "muse_glimmer";

/// All keys of the new file but those of storage.
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
                if !STORAGE_KEYS.iter().any(|storage| key.starts_with(storage)) {
                    keys.set_encoded(&canonical_key(key), encoded.to_vec());
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

fn canonical_key(key: &str) -> String {
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
    const PRESENT: &str = "`ModelKind::of` gave the kind, so the spec has it";
    let spec = checkpoint.spec();
    keys.set("general.type", if kind == ModelKind::Vision { "mmproj" } else { "model" });
    keys.set("general.name", name);
    match kind {
        ModelKind::Text => keys.set_text(spec.text.as_ref().expect(PRESENT))?,
        ModelKind::Drafter => {
            let spec = spec.drafter.as_ref().expect(PRESENT);
            let target = vocabulary.and_then(|target| target.spec().text.as_ref());
            drafter(spec, target, keys);
        }
        ModelKind::Vision => vision(spec.vision.as_ref().expect(PRESENT), keys)?,
    }
    if kind != ModelKind::Vision {
        vocabulary::copy(checkpoint, keys)?;
    }
    if let (ModelKind::Drafter, Some(spec)) = (kind, &spec.drafter) {
        keys.set("tokenizer.ggml.mask_token_id", &spec.mask_token);
    }
    Ok(())
}

/// Settings that the text model and the drafter keep under the same keys.
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
    /// Sets the keys of a text model, all but those of its tokenizer.
    ///
    /// # Errors
    /// When GGUF has no key for a setting of the model.
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
            return Err(not_representable(
                "post_norm_eps",
                format!("{:e}", spec.post_norm_eps),
                &expected,
            ));
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
            _ => {
                return Err(not_representable(
                    "sliding_window",
                    format!("{windows:?}"),
                    "one window",
                ));
            }
        }
        let mismatch = spec.layers.iter().position(|layer| layer.rope != layer.window.is_some());
        if let Some(layer) = mismatch {
            let found =
                format!("layer {layer} with rope and full attention, or with a window and no rope");
            return Err(not_representable(
                "layer_rope_theta",
                found,
                "rope in the layers with a window only",
            ));
        }
        let sliding: Vec<bool> = spec.layers.iter().map(|layer| layer.window.is_some()).collect();
        self.set(&format!("{TEXT}.attention.sliding_window_pattern"), &sliding[..]);
        self.set(&format!("{TEXT}.logit_scale"), &spec.logit_scale);
        let softcap = spec.logit_softcap.unwrap_or(0.0);
        self.set(&format!("{TEXT}.final_logit_softcapping"), &softcap);
        Ok(())
    }
}

/// The error for a setting that GGUF has no key for.
fn not_representable(key: &str, found: String, expected: &str) -> Error {
    Error::Variant {
        file: "the new GGUF file".to_owned(),
        key: key.to_owned(),
        found,
        expected: format!("{expected}: GGUF has no key for anything else"),
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
    keys.set("dflash.block_size", &(spec.draft_block as u32));
    // GGUF gives the number of the layer whose input is read: the output of the one before.
    let layers: Vec<i32> = spec.target_layers.iter().map(|&layer| layer as i32 + 1).collect();
    keys.set("dflash.target_layers", &layers[..]);
}

fn vision(spec: &VisionSpec, keys: &mut GgufKeys) -> Result<()> {
    keys.set("general.architecture", "clip");
    if spec.full_layers != default_full_layers(spec.full_layers.len()) {
        let expected = "every fourth layer and the last full";
        return Err(not_representable("layer_types", "other full layers".to_owned(), expected));
    }
    if spec.table.0 != spec.table.1 {
        let found = format!("a position table of {} x {}", spec.table.0, spec.table.1);
        return Err(not_representable("pos_emb_height", found, "a square one"));
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
