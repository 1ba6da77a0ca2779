//! A GGUF file as data, and its bytes.

use super::f32_bytes;

/// A value of a key.
#[derive(Clone)]
pub(crate) enum Key {
    U32(u32),
    U64(u64),
    I32(i32),
    F32(f32),
    Bool(bool),
    Text(String),
    Bools(Vec<bool>),
    U32s(Vec<u32>),
    I32s(Vec<i32>),
    F32s(Vec<f32>),
    Texts(Vec<Vec<u8>>),
    /// Type id and bytes as they are.
    Raw(u32, Vec<u8>),
}

impl Key {
    fn write(&self, out: &mut Vec<u8>) {
        let mut put = |kind: u32, bytes: &[u8]| {
            out.extend(kind.to_le_bytes());
            out.extend(bytes);
        };
        match self {
            Self::U32(n) => put(4, &n.to_le_bytes()),
            Self::U64(n) => put(10, &n.to_le_bytes()),
            Self::I32(n) => put(5, &n.to_le_bytes()),
            Self::F32(n) => put(6, &n.to_le_bytes()),
            Self::Bool(flag) => put(7, &[u8::from(*flag)]),
            Self::Text(text) => put(8, &text_bytes(text.as_bytes())),
            Self::Bools(list) => put(9, &list_bytes(7, list, |flag| vec![u8::from(*flag)])),
            Self::U32s(list) => put(9, &list_bytes(4, list, |n| n.to_le_bytes().to_vec())),
            Self::I32s(list) => put(9, &list_bytes(5, list, |n| n.to_le_bytes().to_vec())),
            Self::F32s(list) => put(9, &list_bytes(6, list, |n| n.to_le_bytes().to_vec())),
            Self::Texts(list) => put(9, &list_bytes(8, list, |text| text_bytes(text))),
            Self::Raw(kind, bytes) => put(*kind, bytes),
        }
    }
}

impl Key {
    /// A string that need not be UTF-8.
    pub(crate) fn bytes(bytes: &[u8]) -> Self {
        Self::Raw(8, text_bytes(bytes))
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

fn text_bytes(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text].concat()
}

fn list_bytes<T>(kind: u32, items: &[T], item: impl Fn(&T) -> Vec<u8>) -> Vec<u8> {
    let mut out = kind.to_le_bytes().to_vec();
    out.extend((items.len() as u64).to_le_bytes());
    out.extend(items.iter().flat_map(item));
    out
}

/// A tensor: name, dimensions as the file orders them (width first), type id and bytes.
#[derive(Clone)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dims: Vec<u64>,
    pub(crate) kind: u32,
    pub(crate) bytes: Vec<u8>,
    /// Added to the offset the file gives.
    pub(crate) shift: i64,
}

impl Tensor {
    pub(crate) fn f32(name: &str, dims: &[u64]) -> Self {
        let bytes = f32_bytes(name, dims.iter().product::<u64>() as usize);
        Self { name: name.to_owned(), dims: dims.to_vec(), kind: 0, bytes, shift: 0 }
    }
}

/// A file.
#[derive(Clone)]
pub(crate) struct Gguf {
    pub(crate) version: u32,
    pub(crate) alignment: usize,
    pub(crate) keys: Vec<(String, Key)>,
    pub(crate) tensors: Vec<Tensor>,
}

impl Gguf {
    pub(crate) fn key(&mut self, name: &str) -> &mut Key {
        let found = self.keys.iter_mut().find(|(key, _)| key == name);
        &mut found.unwrap_or_else(|| panic!("no key {name}")).1
    }

    /// Sets a key, new or not.
    pub(crate) fn set(&mut self, name: &str, value: Key) {
        self.remove_key(name);
        self.keys.push((name.to_owned(), value));
    }

    pub(crate) fn remove_key(&mut self, name: &str) {
        self.keys.retain(|(key, _)| key != name);
    }

    pub(crate) fn tensor(&mut self, name: &str) -> &mut Tensor {
        let found = self.tensors.iter_mut().find(|tensor| tensor.name == name);
        found.unwrap_or_else(|| panic!("no tensor {name}"))
    }

    pub(crate) fn remove(&mut self, name: &str) -> Tensor {
        let at = self.tensors.iter().position(|tensor| tensor.name == name);
        self.tensors.remove(at.unwrap_or_else(|| panic!("no tensor {name}")))
    }

    /// Everything before the data.
    pub(crate) fn header(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.keys.len() as u64).to_le_bytes());
        for (name, value) in &self.keys {
            out.extend(text_bytes(name.as_bytes()));
            value.write(&mut out);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            out.extend(text_bytes(tensor.name.as_bytes()));
            out.extend((tensor.dims.len() as u32).to_le_bytes());
            out.extend(tensor.dims.iter().flat_map(|dim| dim.to_le_bytes()));
            out.extend(tensor.kind.to_le_bytes());
            out.extend((offset as u64).wrapping_add_signed(tensor.shift).to_le_bytes());
            offset += tensor.bytes.len().next_multiple_of(self.alignment);
        }
        out
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = self.header();
        for tensor in &self.tensors {
            out.resize(out.len().next_multiple_of(self.alignment), 0);
            out.extend(&tensor.bytes);
        }
        out
    }
}

const HIDDEN: u64 = 32;
const FFN: u64 = 64;
const HEAD_DIM: u64 = 16;

/// A text model of four layers, two query heads and one K/V head of 16, in F32.
pub(crate) fn small_text() -> Gguf {
    let name = |key: &str| format!("muse-glimmer.{key}");
    let tokens =
        ["a", "b", "<|begin_of_text|>", "<|end_of_text|>", "<|eom|>", "<|eot|>", "<|patch|>", "c"];
    let keys = vec![
        ("general.architecture".to_owned(), "muse-glimmer".into()),
        (name("block_count"), Key::U32(4)),
        (name("context_length"), Key::U32(256)),
        (name("embedding_length"), Key::U32(HIDDEN as u32)),
        (name("feed_forward_length"), Key::U32(FFN as u32)),
        (name("attention.head_count"), Key::U32(2)),
        (name("attention.head_count_kv"), Key::U32(1)),
        (name("attention.key_length"), Key::U32(HEAD_DIM as u32)),
        (name("attention.value_length"), Key::U32(HEAD_DIM as u32)),
        (name("attention.layer_norm_rms_epsilon"), Key::F32(1e-5)),
        (name("attention.sliding_window"), Key::U32(8)),
        (name("attention.sliding_window_pattern"), Key::Bools(vec![true, true, true, false])),
        (name("rope.freq_base"), Key::F32(500_000.0)),
        (name("logit_scale"), Key::F32(0.5)),
        (name("final_logit_softcapping"), Key::F32(20.0)),
        ("tokenizer.ggml.model".to_owned(), "gpt2".into()),
        ("tokenizer.ggml.pre".to_owned(), "llama4".into()),
        (
            "tokenizer.ggml.tokens".to_owned(),
            Key::Texts(tokens.iter().map(|token| token.as_bytes().to_vec()).collect()),
        ),
        ("tokenizer.ggml.token_type".to_owned(), Key::I32s(vec![1, 1, 3, 3, 3, 3, 3, 1])),
        ("tokenizer.ggml.merges".to_owned(), Key::Texts(vec![b"a b".to_vec()])),
        ("tokenizer.ggml.bos_token_id".to_owned(), Key::U32(2)),
        ("tokenizer.ggml.eos_token_id".to_owned(), Key::U32(3)),
        ("tokenizer.ggml.eot_token_id".to_owned(), Key::U32(5)),
    ];
    let vocab = tokens.len() as u64;
    let mut tensors = vec![
        Tensor::f32("token_embd.weight", &[HIDDEN, vocab]),
        Tensor::f32("output_norm.weight", &[HIDDEN]),
        Tensor::f32("output.weight", &[HIDDEN, vocab]),
    ];
    for layer in 0..4 {
        let mut add = |name: &str, dims: &[u64]| {
            tensors.push(Tensor::f32(&format!("blk.{layer}.{name}.weight"), dims));
        };
        for norm in ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"] {
            add(norm, &[HIDDEN]);
        }
        add("attn_q_norm", &[HEAD_DIM]);
        add("attn_k_norm", &[HEAD_DIM]);
        add("attn_gate", &[HIDDEN, 2 * HEAD_DIM]);
        attention_and_ffn(&mut add);
    }
    Gguf { version: 3, alignment: 32, keys, tensors }
}

fn attention_and_ffn(add: &mut impl FnMut(&str, &[u64])) {
    add("attn_q", &[HIDDEN, 2 * HEAD_DIM]);
    add("attn_k", &[HIDDEN, HEAD_DIM]);
    add("attn_v", &[HIDDEN, HEAD_DIM]);
    add("attn_output", &[2 * HEAD_DIM, HIDDEN]);
    add("ffn_gate", &[HIDDEN, FFN]);
    add("ffn_up", &[HIDDEN, FFN]);
    add("ffn_down", &[FFN, HIDDEN]);
}

/// A drafter of one layer for the text model.
pub(crate) fn small_drafter() -> Gguf {
    let name = |key: &str| format!("dflash.{key}");
    let keys = vec![
        ("general.architecture".to_owned(), "dflash".into()),
        (name("block_count"), Key::U32(1)),
        (name("context_length"), Key::U32(256)),
        (name("embedding_length"), Key::U32(HIDDEN as u32)),
        (name("feed_forward_length"), Key::U32(FFN as u32)),
        (name("attention.head_count"), Key::U32(2)),
        (name("attention.head_count_kv"), Key::U32(1)),
        (name("attention.key_length"), Key::U32(HEAD_DIM as u32)),
        (name("attention.layer_norm_rms_epsilon"), Key::F32(1e-5)),
        (name("attention.sliding_window"), Key::U32(8)),
        (name("attention.sliding_window_pattern"), Key::Bools(vec![true])),
        (name("rope.freq_base"), Key::F32(500_000.0)),
        (name("block_size"), Key::U32(4)),
        (name("target_layers"), Key::I32s(vec![1, 3])),
        ("tokenizer.ggml.mask_token_id".to_owned(), Key::U32(7)),
    ];
    let mut tensors = vec![
        Tensor::f32("fc.weight", &[2 * HIDDEN, HIDDEN]),
        Tensor::f32("enc.output_norm.weight", &[HIDDEN]),
        Tensor::f32("output_norm.weight", &[HIDDEN]),
    ];
    let mut add = |name: &str, dims: &[u64]| {
        tensors.push(Tensor::f32(&format!("blk.0.{name}.weight"), dims));
    };
    add("attn_norm", &[HIDDEN]);
    add("ffn_norm", &[HIDDEN]);
    add("attn_q_norm", &[HEAD_DIM]);
    add("attn_k_norm", &[HEAD_DIM]);
    attention_and_ffn(&mut add);
    Gguf { version: 3, alignment: 32, keys, tensors }
}

/// A projector of one layer for the text model.
pub(crate) fn small_projector() -> Gguf {
    const WIDTH: u64 = 16;
    let name = |key: &str| format!("clip.vision.{key}");
    let keys = vec![
        ("general.architecture".to_owned(), "clip".into()),
        ("clip.projector_type".to_owned(), "muse-glimmer".into()),
        ("clip.has_vision_encoder".to_owned(), Key::Bool(true)),
        (name("projection_dim"), Key::U32(HIDDEN as u32)),
        (name("patch_size"), Key::U32(2)),
        (name("embedding_length"), Key::U32(WIDTH as u32)),
        (name("feed_forward_length"), Key::U32(FFN as u32)),
        (name("block_count"), Key::U32(1)),
        (name("attention.head_count"), Key::U32(2)),
        (name("attention.layer_norm_epsilon"), Key::F32(1e-5)),
        (name("image_mean"), Key::F32s(vec![0.5; 3])),
        (name("image_std"), Key::F32s(vec![0.5; 3])),
        (name("spatial_merge_size"), Key::U32(2)),
    ];
    let mut tensors = vec![
        Tensor::f32("v.patch_embd.weight", &[2, 2, 3, WIDTH]),
        Tensor::f32("v.position_embd.weight", &[WIDTH, 9]),
        Tensor::f32("mm.0.weight", &[4 * WIDTH, 24]),
        Tensor::f32("mm.1.weight", &[24, 24]),
        Tensor::f32("mm.2.weight", &[24, HIDDEN]),
    ];
    let mut affine = |name: &str, dims: &[u64]| {
        tensors.push(Tensor::f32(&format!("v.{name}.weight"), dims));
        tensors.push(Tensor::f32(&format!("v.{name}.bias"), &dims[dims.len() - 1..]));
    };
    for name in ["pre_ln", "post_ln", "blk.0.ln1", "blk.0.ln2"] {
        affine(name, &[WIDTH]);
    }
    for name in ["attn_q", "attn_k", "attn_v", "attn_out"] {
        affine(&format!("blk.0.{name}"), &[WIDTH, WIDTH]);
    }
    affine("blk.0.ffn_up", &[WIDTH, FFN]);
    affine("blk.0.ffn_down", &[FFN, WIDTH]);
    Gguf { version: 3, alignment: 32, keys, tensors }
}
