//! The canonical tensors of a model, their names and shapes in each kind of file, and how their
//! bytes become canonical.

use muse_core::contract::{CheckpointSpec, DrafterSpec, TextSpec, VisionSpec};

/// Whose names and layout a file uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    HuggingFace,
    Gguf,
}

/// How the bytes of a tensor become canonical when it is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Transform {
    /// They are canonical already.
    Identity,
    /// 1 is added: the file stores the weight of a norm minus 1.
    AddOne,
    /// The rows of every head (for a vector, its values) go from interleaved to half-split rotary
    /// order: pairs `(2j, 2j + 1)` become `(j, j + D/2)`.
    Deinterleave { heads: usize },
    /// The file has no such tensor: every value is this one.
    Constant(f32),
}

/// A canonical tensor and its source in a file.
#[derive(Clone, Debug)]
pub(crate) struct TensorPlan {
    /// Canonical name.
    pub(crate) name: String,
    /// Name in the file.
    pub(crate) source: String,
    /// Shape in the file, outermost dimension first.
    pub(crate) source_shape: Vec<usize>,
    /// First row of the source that belongs to this tensor.
    pub(crate) first_row: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) transform: Transform,
}

/// How a tensor differs between HuggingFace and GGUF.
#[derive(Clone, Copy)]
enum Kind {
    /// Not at all.
    Same,
    /// The weight of a norm: HuggingFace stores it minus 1.
    Centered,
    /// Rows of rotary heads: half-split in HuggingFace, interleaved in GGUF.
    Rotary { heads: usize },
    /// Absent in HuggingFace. A vector in GGUF, in interleaved order.
    Constant(f32),
}

/// The canonical tensors of all models of a checkpoint, in a fixed order.
///
/// `qk_scale` is the factor on normed queries, which HuggingFace keeps in config.json and GGUF in
/// `attn_q_norm`. `has` returns whether the file holds a tensor.
pub(crate) fn tensor_plans(
    naming: Naming,
    spec: &CheckpointSpec,
    qk_scale: f32,
    has: &dyn Fn(&str) -> bool,
) -> Vec<TensorPlan> {
    let mut planner = Planner { naming, has, plans: Vec::new() };
    if let Some(text) = &spec.text {
        planner.text(text, qk_scale);
    }
    if let Some(drafter) = &spec.drafter {
        planner.drafter(drafter);
    }
    if let Some(vision) = &spec.vision {
        planner.vision(vision);
    }
    planner.plans
}

struct Planner<'a> {
    naming: Naming,
    has: &'a dyn Fn(&str) -> bool,
    plans: Vec<TensorPlan>,
}

impl Planner<'_> {
    fn add(&mut self, gguf: String, huggingface: String, (rows, cols): (usize, usize), kind: Kind) {
        let vector = rows == 1;
        let transform = match (self.naming, kind) {
            (Naming::HuggingFace, Kind::Centered) => Transform::AddOne,
            (Naming::HuggingFace, Kind::Constant(value)) => Transform::Constant(value),
            (Naming::Gguf, Kind::Rotary { heads }) => Transform::Deinterleave { heads },
            (Naming::Gguf, Kind::Constant(_)) => Transform::Deinterleave { heads: 1 },
            _ => Transform::Identity,
        };
        let source = match self.naming {
            Naming::HuggingFace => huggingface,
            Naming::Gguf => gguf.clone(),
        };
        let source_shape = if vector { vec![cols] } else { vec![rows, cols] };
        self.plans.push(TensorPlan {
            name: gguf,
            source,
            source_shape,
            first_row: 0,
            rows,
            cols,
            transform,
        });
    }

    fn text(&mut self, spec: &TextSpec, qk_scale: f32) {
        let (hidden, ffn) = (spec.hidden, spec.ffn);
        let (q, kv) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        let mut top = |gguf: &str, huggingface: &str, shape| {
            self.add(gguf.to_owned(), huggingface.to_owned(), shape, Kind::Same);
        };
        top("token_embd.weight", "model.language_model.embed_tokens.weight", (spec.vocab, hidden));
        top("output_norm.weight", "model.language_model.norm.weight", (1, hidden));
        top("output.weight", "lm_head.weight", (spec.vocab, hidden));
        let (q_rows, k_rows) =
            (Kind::Rotary { heads: spec.heads }, Kind::Rotary { heads: spec.kv_heads });
        for layer in 0..spec.layers.len() {
            let at = format!("model.language_model.layers.{layer}");
            self.layer(
                &format!("blk.{layer}"),
                &at,
                &[
                    ("attn_norm", "input_layernorm", (1, hidden), Kind::Centered),
                    (
                        "post_attention_norm",
                        "post_attention_layernorm",
                        (1, hidden),
                        Kind::Centered,
                    ),
                    ("ffn_norm", "pre_feedforward_layernorm", (1, hidden), Kind::Centered),
                    ("post_ffw_norm", "post_feedforward_layernorm", (1, hidden), Kind::Centered),
                    ("attn_q", "self_attn.q_proj", (q, hidden), q_rows),
                    ("attn_k", "self_attn.k_proj", (kv, hidden), k_rows),
                    ("attn_v", "self_attn.v_proj", (kv, hidden), Kind::Same),
                    ("attn_q_norm", "", (1, spec.head_dim), Kind::Constant(qk_scale)),
                    ("attn_k_norm", "", (1, spec.head_dim), Kind::Constant(1.0)),
                    ("attn_gate", "self_attn.gate_proj", (q, hidden), Kind::Same),
                    ("attn_output", "self_attn.o_proj", (hidden, q), Kind::Same),
                    ("ffn_gate", "mlp.gate_proj", (ffn, hidden), Kind::Same),
                    ("ffn_up", "mlp.up_proj", (ffn, hidden), Kind::Same),
                    ("ffn_down", "mlp.down_proj", (hidden, ffn), Kind::Same),
                ],
            );
        }
    }

    fn drafter(&mut self, spec: &DrafterSpec) {
        let (hidden, ffn) = (spec.hidden, spec.ffn);
        let (q, kv) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        let captured = spec.target_layers.len() * hidden;
        let mut top = |gguf: &str, huggingface: &str, shape| {
            self.add(gguf.to_owned(), huggingface.to_owned(), shape, Kind::Same);
        };
        top("fc.weight", "encoder.fc.weight", (hidden, captured));
        top("enc.output_norm.weight", "encoder.output_norm_enc.weight", (1, hidden));
        top("output_norm.weight", "norm.weight", (1, hidden));
        for layer in 0..spec.layers {
            self.layer(
                &format!("blk.{layer}"),
                &format!("layers.{layer}"),
                &[
                    ("attn_norm", "input_layernorm", (1, hidden), Kind::Same),
                    ("ffn_norm", "post_attention_layernorm", (1, hidden), Kind::Same),
                    ("attn_q", "self_attn.q_proj", (q, hidden), Kind::Same),
                    ("attn_k", "self_attn.k_proj", (kv, hidden), Kind::Same),
                    ("attn_v", "self_attn.v_proj", (kv, hidden), Kind::Same),
                    ("attn_q_norm", "self_attn.q_norm", (1, spec.head_dim), Kind::Same),
                    ("attn_k_norm", "self_attn.k_norm", (1, spec.head_dim), Kind::Same),
                    ("attn_output", "self_attn.o_proj", (hidden, q), Kind::Same),
                    ("ffn_gate", "mlp.gate_proj", (ffn, hidden), Kind::Same),
                    ("ffn_up", "mlp.up_proj", (ffn, hidden), Kind::Same),
                    ("ffn_down", "mlp.down_proj", (hidden, ffn), Kind::Same),
                ],
            );
        }
    }

    /// The weights of a layer: GGUF suffix, HuggingFace suffix, rows and columns.
    fn layer(
        &mut self,
        gguf: &str,
        huggingface: &str,
        weights: &[(&str, &str, (usize, usize), Kind)],
    ) {
        let first = self.plans.len();
        for &(name, theirs, shape, kind) in weights {
            let theirs = format!("{huggingface}.{theirs}.weight");
            self.add(format!("{gguf}.{name}.weight"), theirs, shape, kind);
        }
        self.unfuse(&format!("{gguf}.attn_qkv.weight"), gguf, first);
    }

    /// Makes q, k and v row ranges of `attn_qkv` when the file has that fused matrix.
    fn unfuse(&mut self, fused: &str, gguf: &str, first: usize) {
        if self.naming != Naming::Gguf || !(self.has)(fused) {
            return;
        }
        let names = ["q", "k", "v"].map(|name| format!("{gguf}.attn_{name}.weight"));
        let members = || first..self.plans.len();
        let found = names.each_ref().map(|name| {
            members().find(|&i| &self.plans[i].name == name).expect("every layer has q, k and v")
        });
        let total = found.iter().map(|&i| self.plans[i].rows).sum();
        let mut row = 0;
        for i in found {
            let plan = &mut self.plans[i];
            plan.source = fused.to_owned();
            plan.source_shape = vec![total, plan.cols];
            plan.first_row = row;
            row += plan.rows;
        }
    }

    fn vision(&mut self, spec: &VisionSpec) {
        const HF: &str = "model.vision_tower";
        let (hidden, ffn) = (spec.hidden, spec.ffn);
        self.patch_kernel(spec);
        let positions = spec.table.0 * spec.table.1;
        let table = format!("{HF}.patch_embedder.position_embedding_table.weight");
        self.add("v.position_embd.weight".to_owned(), table, (positions, hidden), Kind::Same);
        self.affine("v.pre_ln", &format!("{HF}.ln_pre"), (1, hidden), Kind::Same);
        let rotary = Kind::Rotary { heads: spec.heads };
        for layer in 0..spec.full_layers.len() {
            for (gguf, theirs, shape, kind) in [
                ("ln1", "norm1", (1, hidden), Kind::Same),
                ("attn_q", "attn.q_proj", (hidden, hidden), rotary),
                ("attn_k", "attn.k_proj", (hidden, hidden), rotary),
                ("attn_v", "attn.v_proj", (hidden, hidden), Kind::Same),
                ("attn_out", "attn.proj", (hidden, hidden), Kind::Same),
                ("ln2", "norm2", (1, hidden), Kind::Same),
                ("ffn_up", "mlp.fc1", (ffn, hidden), Kind::Same),
                ("ffn_down", "mlp.fc2", (hidden, ffn), Kind::Same),
            ] {
                let theirs = format!("{HF}.layers.{layer}.{theirs}");
                self.affine(&format!("v.blk.{layer}.{gguf}"), &theirs, shape, kind);
            }
        }
        self.affine("v.post_ln", &format!("{HF}.ln_post"), (1, hidden), Kind::Same);
        let merged = hidden * spec.merge * spec.merge;
        for (i, (theirs, shape)) in [
            ("model.vision_adapter.fc1", (spec.projector, merged)),
            ("model.vision_adapter.fc2", (spec.projector, spec.projector)),
            ("model.vision_projection", (spec.out, spec.projector)),
        ]
        .into_iter()
        .enumerate()
        {
            self.add(format!("mm.{i}.weight"), format!("{theirs}.weight"), shape, Kind::Same);
        }
    }

    /// HuggingFace keeps the temporal halves of the patch kernel side by side. GGUF stores their sum,
    /// in four dimensions.
    fn patch_kernel(&mut self, spec: &VisionSpec) {
        let (hidden, side) = (spec.hidden, spec.patch);
        let frames = match self.naming {
            Naming::HuggingFace => spec.temporal,
            Naming::Gguf => 1,
        };
        let theirs = "model.vision_tower.patch_embedder.patch_embedding.weight".to_owned();
        let shape = (hidden, frames * 3 * side * side);
        self.add("v.patch_embd.weight".to_owned(), theirs, shape, Kind::Same);
        if self.naming == Naming::Gguf {
            let kernel = self.plans.last_mut().expect("just added");
            kernel.source_shape = vec![hidden, 3, side, side];
        }
    }

    /// A weight and its bias.
    fn affine(&mut self, gguf: &str, theirs: &str, shape: (usize, usize), kind: Kind) {
        self.add(format!("{gguf}.weight"), format!("{theirs}.weight"), shape, kind);
        let outputs = if shape.0 == 1 { shape.1 } else { shape.0 };
        self.add(format!("{gguf}.bias"), format!("{theirs}.bias"), (1, outputs), kind);
    }
}
