//! A HuggingFace folder as data, and the files it stands for.

use serde_json::{Value, json};

use super::f32_bytes;

/// A tensor: name, dtype, shape and bytes.
#[derive(Clone)]
pub(crate) struct HfTensor {
    pub(crate) name: String,
    pub(crate) dtype: &'static str,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

impl HfTensor {
    pub(crate) fn f32(name: &str, shape: &[usize]) -> Self {
        let bytes = f32_bytes(name, shape.iter().product());
        Self { name: name.to_owned(), dtype: "F32", shape: shape.to_vec(), bytes }
    }
}

/// The bytes of a safetensors file.
pub(crate) fn safetensors(tensors: &[HfTensor]) -> Vec<u8> {
    let mut header = json!({ "__metadata__": { "format": "pt" } });
    let mut at = 0;
    for tensor in tensors {
        let end = at + tensor.bytes.len();
        header[&tensor.name] =
            json!({ "dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [at, end] });
        at = end;
    }
    with_header(&header.to_string(), tensors)
}

fn with_header(header: &str, tensors: &[HfTensor]) -> Vec<u8> {
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.as_bytes());
    out.extend(tensors.iter().flat_map(|tensor| tensor.bytes.clone()));
    out
}

/// A folder.
#[derive(Clone)]
pub(crate) struct Folder {
    pub(crate) config: Value,
    pub(crate) tensors: Vec<HfTensor>,
    /// Other files. One named as config.json or the weights replaces it.
    pub(crate) others: Vec<(String, Vec<u8>)>,
}

impl Folder {
    pub(crate) fn text(&mut self) -> &mut Value {
        &mut self.config["text_config"]
    }

    pub(crate) fn tensor(&mut self, name: &str) -> &mut HfTensor {
        let found = self.tensors.iter_mut().find(|tensor| tensor.name == name);
        found.unwrap_or_else(|| panic!("no tensor {name}"))
    }

    pub(crate) fn other(&mut self, name: &str, bytes: impl Into<Vec<u8>>) {
        self.others.push((name.to_owned(), bytes.into()));
    }

    /// Replaces the header of the weights, which `rewrite` makes of the right one.
    pub(crate) fn rewrite_header(&mut self, rewrite: impl Fn(String) -> String) {
        let bytes = safetensors(&self.tensors);
        let length = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
        let header = String::from_utf8(bytes[8..8 + length].to_vec()).expect("JSON");
        self.other("model.safetensors", with_header(&rewrite(header), &self.tensors));
    }

    /// The files by name.
    pub(crate) fn files(self) -> Vec<(String, Vec<u8>)> {
        let mut files = vec![
            ("config.json".to_owned(), self.config.to_string().into_bytes()),
            ("model.safetensors".to_owned(), safetensors(&self.tensors)),
        ];
        files.extend(self.others);
        files
    }

    /// The files by name, the weights in two shards with an index.
    pub(crate) fn sharded(self) -> Vec<(String, Vec<u8>)> {
        let names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
        let half = self.tensors.len() / 2;
        let map: serde_json::Map<String, Value> = self
            .tensors
            .iter()
            .enumerate()
            .map(|(i, tensor)| (tensor.name.clone(), names[usize::from(i >= half)].into()))
            .collect();
        let index = json!({ "metadata": {}, "weight_map": map });
        let mut files = vec![
            ("config.json".to_owned(), self.config.to_string().into_bytes()),
            ("model.safetensors.index.json".to_owned(), index.to_string().into_bytes()),
            (names[0].to_owned(), safetensors(&self.tensors[..half])),
            (names[1].to_owned(), safetensors(&self.tensors[half..])),
        ];
        files.extend(self.others);
        files
    }
}

const HIDDEN: usize = 32;
const FFN: usize = 64;
const HEAD_DIM: usize = 16;

/// A text model of five layers, without a vision tower.
pub(crate) fn small_target() -> Folder {
    let config = json!({
        "model_type": "muse_glimmer",
        "image_token_id": 6,
        "text_config": {
            "hidden_size": HIDDEN, "intermediate_size": FFN, "num_hidden_layers": 5,
            "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": HEAD_DIM,
            "vocab_size": 8, "rms_norm_eps": 1e-5, "post_norm_eps": 1e-8,
            "rope_parameters": { "rope_type": "default", "rope_theta": 500_000.0 },
            "sliding_window": 8, "qk_scale_factor": 3.87, "output_multiplier": 0.5,
            "final_logit_softcapping": 20.0, "max_position_embeddings": 256,
            "hidden_activation": "silu", "eos_token_id": 3,
        },
    });
    let top = "model.language_model";
    let mut tensors = vec![
        HfTensor::f32("lm_head.weight", &[8, HIDDEN]),
        HfTensor::f32(&format!("{top}.embed_tokens.weight"), &[8, HIDDEN]),
        HfTensor::f32(&format!("{top}.norm.weight"), &[HIDDEN]),
    ];
    for layer in 0..5 {
        let mut add = |name: &str, shape: &[usize]| {
            tensors.push(HfTensor::f32(&format!("{top}.layers.{layer}.{name}.weight"), shape));
        };
        for norm in [
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
        ] {
            add(norm, &[HIDDEN]);
        }
        add("self_attn.gate_proj", &[2 * HEAD_DIM, HIDDEN]);
        attention_and_ffn(&mut add);
    }
    Folder { config, tensors, others: Vec::new() }
}

fn attention_and_ffn(add: &mut impl FnMut(&str, &[usize])) {
    add("self_attn.q_proj", &[2 * HEAD_DIM, HIDDEN]);
    add("self_attn.k_proj", &[HEAD_DIM, HIDDEN]);
    add("self_attn.v_proj", &[HEAD_DIM, HIDDEN]);
    add("self_attn.o_proj", &[HIDDEN, 2 * HEAD_DIM]);
    add("mlp.gate_proj", &[FFN, HIDDEN]);
    add("mlp.up_proj", &[FFN, HIDDEN]);
    add("mlp.down_proj", &[HIDDEN, FFN]);
}

/// A drafter of one layer.
pub(crate) fn small_assistant() -> Folder {
    let config = json!({
        "model_type": "muse_glimmer_assistant",
        "hidden_size": HIDDEN, "intermediate_size": FFN, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": HEAD_DIM,
        "rms_norm_eps": 1e-5, "sliding_window": 8, "block_size": 4, "mask_token_id": 7,
        "rope_parameters": { "rope_type": "default", "rope_theta": 500_000.0 },
        "layer_types": ["sliding_attention"], "target_layer_ids": [0, 2],
    });
    let mut tensors = vec![
        HfTensor::f32("encoder.fc.weight", &[HIDDEN, 2 * HIDDEN]),
        HfTensor::f32("encoder.output_norm_enc.weight", &[HIDDEN]),
        HfTensor::f32("norm.weight", &[HIDDEN]),
    ];
    let mut add = |name: &str, shape: &[usize]| {
        tensors.push(HfTensor::f32(&format!("layers.0.{name}.weight"), shape));
    };
    add("input_layernorm", &[HIDDEN]);
    add("post_attention_layernorm", &[HIDDEN]);
    add("self_attn.q_norm", &[HEAD_DIM]);
    add("self_attn.k_norm", &[HEAD_DIM]);
    attention_and_ffn(&mut add);
    Folder { config, tensors, others: Vec::new() }
}
