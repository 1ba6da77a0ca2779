//! A checkpoint as models see it: one naming and one layout for every file format.

use std::borrow::Cow;

use crate::Result;
use crate::quant::Format;

/// A checkpoint, a HuggingFace folder or GGUF files, behind one naming and one layout.
///
/// Names are the GGUF ones (`blk.3.attn_q.weight`). The layout is the reference's: weights of the
/// four layer norms are the factor itself (1 + w of a HuggingFace file); q and k rows of the text
/// model and of the vision tower are in the half-split rotary order (pairs `j, j + D/2`); every
/// layer of the text model has `attn_q_norm` and `attn_k_norm` of width `head_dim`, the q one
/// holding the factor 3.87; a fused `attn_qkv` is three tensors; `v.patch_embd.weight` has the
/// two temporal halves side by side when the file keeps them apart.
pub trait WeightSource: Send + Sync {
    /// The models that the checkpoint holds.
    fn spec(&self) -> &CheckpointSpec;
    /// Its defaults for sampling and its stop tokens.
    fn generation(&self) -> &GenerationDefaults;
    /// The vocabulary, if the checkpoint has one.
    fn vocabulary(&self) -> Result<Option<Vocabulary>>;
    /// All tensors, in a fixed order.
    fn tensors(&self) -> &[TensorInfo];
    /// A tensor's bytes. [`crate::Error::Corrupt`] names the file and the tensor when it is
    /// missing.
    fn weight(&self, name: &str) -> Result<WeightView<'_>>;
    /// Names the files and their state (size and time of change): while it is equal, so are the
    /// tensors. None when only the bytes themselves can tell.
    fn stamp(&self) -> Option<String> {
        None
    }
    /// A tensor was loaded: memory that holds its bytes may be released. It can be read again.
    /// Sources that keep their bytes in memory do nothing.
    fn release(&self, _name: &str) {}
}

/// The models of a checkpoint; a HuggingFace target folder holds text and vision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckpointSpec {
    /// The text model.
    pub text: Option<TextSpec>,
    /// A DFlash drafter.
    pub drafter: Option<DrafterSpec>,
    /// The vision tower with its projector.
    pub vision: Option<VisionSpec>,
}

/// The text model.
#[derive(Clone, Debug, PartialEq)]
pub struct TextSpec {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the feed-forward.
    pub ffn: usize,
    /// Query heads.
    pub heads: usize,
    /// K/V heads.
    pub kv_heads: usize,
    /// Width of a head; `heads · head_dim` need not be `hidden`.
    pub head_dim: usize,
    /// Rows of the embedding and of the LM head.
    pub vocab: usize,
    /// One entry per layer.
    pub layers: Vec<LayerSpec>,
    /// Epsilon of every norm but the post norms.
    pub norm_eps: f32,
    /// Epsilon of the norms after attention and after the feed-forward.
    pub post_norm_eps: f32,
    /// Base of the rotary frequencies.
    pub rope_theta: f32,
    /// Factor on the output of the LM head.
    pub logit_scale: f32,
    /// Soft cap of the logits; none when the file has 0.
    pub logit_softcap: Option<f32>,
    /// The most positions.
    pub max_positions: usize,
    /// Placeholder token of a picture's embedding row.
    pub image_token: Option<u32>,
}

/// One layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerSpec {
    /// Positions that a query attends to, its own included; none means all.
    pub window: Option<u32>,
    /// Whether q and k are rotated.
    pub rope: bool,
}

/// A DFlash drafter.
#[derive(Clone, Debug, PartialEq)]
pub struct DrafterSpec {
    /// Width of the residual stream, that of the target.
    pub hidden: usize,
    /// Width of the feed-forward.
    pub ffn: usize,
    /// Query heads.
    pub heads: usize,
    /// K/V heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Layers.
    pub layers: usize,
    /// Epsilon of every norm.
    pub norm_eps: f32,
    /// Base of the rotary frequencies; all layers rotate.
    pub rope_theta: f32,
    /// Largest distance that a query attends to, inclusive.
    pub reach: u32,
    /// Tokens of a draft block, the anchor included.
    pub draft_block: usize,
    /// Fills the draft block behind the anchor.
    pub mask_token: u32,
    /// Layers of the target model, from 0, whose output it reads.
    pub target_layers: Vec<usize>,
}

/// The vision tower and its projector.
#[derive(Clone, Debug, PartialEq)]
pub struct VisionSpec {
    /// Width of the tower.
    pub hidden: usize,
    /// Width of the tower's feed-forward.
    pub ffn: usize,
    /// Heads.
    pub heads: usize,
    /// Whether each layer attends to the whole picture, else to its window.
    pub full_layers: Vec<bool>,
    /// Side of a patch in pixels.
    pub patch: usize,
    /// Frames of a patch.
    pub temporal: usize,
    /// Side of the square of patches that becomes one embedding row.
    pub merge: usize,
    /// Sides of the position table, down and across; windows have the same size.
    pub table: (usize, usize),
    /// Epsilon of every layer norm.
    pub norm_eps: f32,
    /// Base of the rotary frequencies.
    pub rope_theta: f32,
    /// Hidden width of the projector.
    pub projector: usize,
    /// Width of the embedding rows.
    pub out: usize,
}

/// Sampling defaults of a checkpoint; `None` where it has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationDefaults {
    /// 0 when the file switches sampling off.
    pub temperature: Option<f32>,
    /// See [`super::Sampling::top_k`].
    pub top_k: Option<u32>,
    /// See [`super::Sampling::top_p`].
    pub top_p: Option<f32>,
    /// See [`super::Sampling::min_p`].
    pub min_p: Option<f32>,
    /// See [`super::Sampling::repetition_penalty`].
    pub repetition_penalty: Option<f32>,
    /// Tokens that end an answer.
    pub stop: Vec<u32>,
}

/// A vocabulary as plain data.
#[derive(Clone, Debug)]
pub enum Vocabulary {
    /// A HuggingFace `tokenizer.json`.
    HuggingFace(Vec<u8>),
    /// Byte-level BPE tables of a GGUF file.
    Bpe {
        /// Token texts in the byte-to-letter alphabet of byte-level BPE.
        tokens: Vec<String>,
        /// What each token is.
        kinds: Vec<TokenKind>,
        /// Merge rules, two token texts with a space between, best first.
        merges: Vec<String>,
        /// Name of the pre-tokenizer.
        pre: String,
        /// The token that begins a text.
        bos: Option<u32>,
    },
}

/// What a token of a GGUF vocabulary is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Part of a text.
    Normal,
    /// A special token.
    Control,
    /// Part of a text that is never split or merged.
    UserDefined,
    /// Unknown, unused or byte.
    Other,
}

/// A tensor of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Canonical name.
    pub name: String,
    /// Format of its bytes.
    pub format: Format,
    /// Rows; 1 for a vector.
    pub rows: usize,
    /// Width of a row.
    pub cols: usize,
}

/// A tensor's bytes: row-major `[rows, cols]`, rows in whole quant blocks of the format.
#[derive(Clone, Debug)]
pub struct WeightView<'a> {
    /// Canonical name.
    pub name: &'a str,
    /// Format of the bytes.
    pub format: Format,
    /// Rows.
    pub rows: usize,
    /// Width of a row, a multiple of the format's quant block.
    pub cols: usize,
    /// The bytes; owned where the layout had to be changed.
    pub bytes: Cow<'a, [u8]>,
}

impl WeightView<'_> {
    /// All values, decoded.
    pub fn to_f32(&self) -> Vec<f32> {
        let mut out = vec![0.0; self.rows * self.cols];
        self.format.decode(&self.bytes, &mut out);
        out
    }
}
