//! Sound GGUF containers whose keys and tensors contradict each other or the model.

use muse_core::contract::WeightSource;

use crate::broken_gguf::{Case, check_all};
use crate::support::*;

const SETTINGS: &[Case] = &[
    (
        "no architecture",
        |f| f.remove_key("general.architecture"),
        &["`general.architecture`", "nothing"],
    ),
    (
        "another architecture",
        |f| f.set("general.architecture", "llama".into()),
        &["`llama`", "muse-glimmer"],
    ),
    (
        "architecture number",
        |f| f.set("general.architecture", Key::U32(1)),
        &["found 1", "a string"],
    ),
    (
        "no layers",
        |f| f.remove_key("muse-glimmer.block_count"),
        &["`muse-glimmer.block_count`", "nothing"],
    ),
    ("layers as text", |f| f.set("muse-glimmer.block_count", "4".into()), &["the string `4`"]),
    ("negative layers", |f| f.set("muse-glimmer.block_count", Key::I32(-4)), &["found -4"]),
    (
        "layers without end",
        |f| f.set("muse-glimmer.block_count", Key::U64(1 << 40)),
        &["1099511627776", "1 to 1024"],
    ),
    (
        "more layers",
        |f| {
            f.set("muse-glimmer.block_count", Key::U32(5));
            f.set("muse-glimmer.attention.sliding_window_pattern", Key::U32(4));
        },
        &["`blk.4.attn_norm.weight`", "no such tensor", "[32]"],
    ),
    (
        "fewer layers",
        |f| {
            f.set("muse-glimmer.block_count", Key::U32(3));
            f.set("muse-glimmer.attention.sliding_window_pattern", Key::U32(4));
        },
        &["`blk.3.", "only tensors of the model"],
    ),
    (
        "K/V heads",
        |f| f.set("muse-glimmer.attention.head_count_kv", Key::U32(3)),
        &["head_count_kv`", "found 3", "divisor of the 2"],
    ),
    (
        "odd heads",
        |f| f.set("muse-glimmer.attention.key_length", Key::U32(15)),
        &["key_length`", "found 15", "even"],
    ),
    (
        "no head width",
        |f| f.set("muse-glimmer.attention.key_length", Key::U32(0)),
        &["key_length`", "found 0"],
    ),
    (
        "V of another width",
        |f| f.set("muse-glimmer.attention.value_length", Key::U32(8)),
        &["value_length`", "found 8", "16"],
    ),
    (
        "part of a head rotated",
        |f| f.set("muse-glimmer.rope.dimension_count", Key::U32(8)),
        &["dimension_count`", "16"],
    ),
    (
        "rope scaling",
        |f| f.set("muse-glimmer.rope.scaling.type", "yarn".into()),
        &["rope.scaling.type`", "`yarn`", "none"],
    ),
    (
        "eps not a number",
        |f| f.set("muse-glimmer.attention.layer_norm_rms_epsilon", Key::F32(f32::NAN)),
        &["epsilon`", "NaN"],
    ),
    (
        "eps negative",
        |f| f.set("muse-glimmer.attention.layer_norm_rms_epsilon", Key::F32(-1e-5)),
        &["epsilon`", "above 0"],
    ),
    (
        "theta infinite",
        |f| f.set("muse-glimmer.rope.freq_base", Key::F32(f32::INFINITY)),
        &["freq_base`", "inf"],
    ),
    (
        "scale zero",
        |f| f.set("muse-glimmer.logit_scale", Key::F32(0.0)),
        &["logit_scale`", "found 0"],
    ),
    ("scale missing", |f| f.remove_key("muse-glimmer.logit_scale"), &["logit_scale`", "nothing"]),
    (
        "cap negative",
        |f| f.set("muse-glimmer.final_logit_softcapping", Key::F32(-1.0)),
        &["softcapping`", "-1"],
    ),
    (
        "pattern short",
        |f| f.set("muse-glimmer.attention.sliding_window_pattern", Key::Bools(vec![true])),
        &["pattern`", "an array of 1", "4, one per layer"],
    ),
    (
        "pattern of texts",
        |f| f.set("muse-glimmer.attention.sliding_window_pattern", Key::Texts(vec![vec![]; 4])),
        &["pattern`", "an array of integers"],
    ),
    (
        "pattern as text",
        |f| f.set("muse-glimmer.attention.sliding_window_pattern", "4".into()),
        &["pattern`", "the string `4`"],
    ),
    (
        "window zero",
        |f| f.set("muse-glimmer.attention.sliding_window", Key::U32(0)),
        &["sliding_window`", "found 0"],
    ),
    (
        "window missing",
        |f| f.remove_key("muse-glimmer.attention.sliding_window"),
        &["sliding_window`", "nothing"],
    ),
    (
        "positions huge",
        |f| f.set("muse-glimmer.context_length", Key::U32(u32::MAX)),
        &["context_length`", "4294967295"],
    ),
    (
        "vocabulary of another size",
        |f| f.set("muse-glimmer.vocab_size", Key::U32(9)),
        &["tokenizer.ggml.tokens`", "an array of 8", "9"],
    ),
    (
        "eos outside",
        |f| f.set("tokenizer.ggml.eos_token_id", Key::U32(8)),
        &["eos_token_id`", "found 8", "below"],
    ),
    (
        "eot of a wrong type",
        |f| f.set("tokenizer.ggml.eot_token_id", Key::Bool(true)),
        &["eot_token_id`", "true"],
    ),
    (
        "a part under another name",
        |f| f.set("split.count", Key::U32(3)),
        &["one of 3 parts", "-00001-of-00003.gguf"],
    ),
];

const TENSORS: &[Case] = &[
    (
        "missing",
        |f| drop(f.remove("blk.1.ffn_up.weight")),
        &["`blk.1.ffn_up.weight`", "no such tensor", "[64, 32]"],
    ),
    ("no head", |f| drop(f.remove("output.weight")), &["`output.weight`", "no such tensor"]),
    (
        "no query norm",
        |f| drop(f.remove("blk.2.attn_q_norm.weight")),
        &["`blk.2.attn_q_norm.weight`"],
    ),
    (
        "transposed",
        |f| f.tensor("blk.0.ffn_up.weight").dims = vec![64, 32],
        &["`blk.0.ffn_up.weight`", "[32, 64]", "[64, 32]"],
    ),
    (
        "a norm that is a column",
        |f| f.tensor("blk.0.ffn_norm.weight").dims = vec![1, 32],
        &["`blk.0.ffn_norm.weight`", "[32, 1]"],
    ),
    (
        "q bias",
        |f| f.tensors.push(Tensor::f32("blk.0.attn_q.bias", &[32])),
        &["`blk.0.attn_q.bias`", "no such bias"],
    ),
    (
        "experts",
        |f| f.tensors.push(Tensor::f32("blk.0.ffn_gate_inp.weight", &[32, 4])),
        &["`blk.0.ffn_gate_inp.weight`", "only tensors of the model"],
    ),
    (
        "rope factors",
        |f| f.tensors.push(Tensor::f32("rope_freqs.weight", &[8])),
        &["`rope_freqs.weight`", "factors of 1"],
    ),
    (
        "vocabulary",
        |f| {
            f.remove_key("tokenizer.ggml.tokens");
            f.set("muse-glimmer.vocab_size", Key::U32(9));
        },
        &["`token_embd.weight`", "[8, 32]", "[9, 32]"],
    ),
    (
        "q and qkv",
        |f| f.tensors.push(Tensor::f32("blk.0.attn_qkv.weight", &[32, 64])),
        &["`blk.0.attn_q.weight`", "only tensors"],
    ),
    (
        "short qkv",
        |f| {
            ["q", "k", "v"].iter().for_each(|n| drop(f.remove(&format!("blk.0.attn_{n}.weight"))));
            f.tensors.push(Tensor::f32("blk.0.attn_qkv.weight", &[32, 60]));
        },
        &["`blk.0.attn_qkv.weight`", "[60, 32]", "[64, 32]"],
    ),
];

#[test]
fn broken_settings() {
    check_all(small_text, SETTINGS);
}

#[test]
fn broken_tensors() {
    check_all(small_text, TENSORS);
}

const DRAFTERS: &[Case] = &[
    (
        "no targets",
        |f| f.remove_key("dflash.target_layers"),
        &["`dflash.target_layers`", "no layers"],
    ),
    (
        "target 0",
        |f| f.set("dflash.target_layers", Key::I32s(vec![0, 3])),
        &["target_layers`", "[0, 3]", "from 1"],
    ),
    (
        "targets out of order",
        |f| f.set("dflash.target_layers", Key::I32s(vec![3, 1])),
        &["increasing"],
    ),
    ("target negative", |f| f.set("dflash.target_layers", Key::I32s(vec![-1, 1])), &["-1"]),
    (
        "three targets",
        |f| f.set("dflash.target_layers", Key::I32s(vec![1, 2, 3])),
        &["`fc.weight`", "[32, 64]", "[32, 96]"],
    ),
    (
        "no mask token",
        |f| f.remove_key("tokenizer.ggml.mask_token_id"),
        &["`tokenizer.ggml.mask_token_id`", "nothing"],
    ),
    (
        "full attention",
        |f| f.set("dflash.attention.sliding_window_pattern", Key::Bools(vec![false])),
        &["full attention"],
    ),
    ("causal", |f| f.set("dflash.attention.causal", Key::Bool(true)), &["causal`", "true"]),
    (
        "scaled",
        |f| f.set("dflash.embedding_scale", Key::F32(2.0)),
        &["embedding_scale`", "found 2"],
    ),
    ("no block", |f| f.set("dflash.block_size", Key::U32(0)), &["block_size`", "found 0"]),
    ("d2t", |f| f.tensors.push(Tensor::f32("d2t", &[8])), &["`d2t`", "only tensors of the model"]),
];

#[test]
fn broken_drafters() {
    check_all(small_drafter, DRAFTERS);
}

const PROJECTORS: &[Case] = &[
    (
        "another projector",
        |f| f.set("clip.projector_type", "mlp".into()),
        &["projector_type`", "`mlp`", "muse-glimmer"],
    ),
    ("no projector", |f| f.remove_key("clip.projector_type"), &["projector_type`", "nothing"]),
    (
        "audio only",
        |f| f.set("clip.has_vision_encoder", Key::Bool(false)),
        &["has_vision_encoder`"],
    ),
    (
        "other pixels",
        |f| f.set("clip.vision.image_mean", Key::F32s(vec![0.48; 3])),
        &["image_mean`", "0.5"],
    ),
    (
        "heads",
        |f| f.set("clip.vision.attention.head_count", Key::U32(3)),
        &["head_count`", "found 3"],
    ),
    (
        "table not square",
        |f| *f.tensor("v.position_embd.weight") = Tensor::f32("v.position_embd.weight", &[16, 10]),
        &["`v.position_embd.weight`", "10 positions", "square"],
    ),
    (
        "no bias",
        |f| drop(f.remove("v.blk.0.attn_v.bias")),
        &["`v.blk.0.attn_v.bias`", "no such tensor"],
    ),
    (
        "a projector bias",
        |f| f.tensors.push(Tensor::f32("mm.0.bias", &[24])),
        &["`mm.0.bias`", "no such bias"],
    ),
    (
        "kernel of a video",
        |f| *f.tensor("v.patch_embd.weight") = Tensor::f32("v.patch_embd.weight", &[2, 2, 6, 16]),
        &["`v.patch_embd.weight`", "[16, 3, 2, 2]"],
    ),
];

#[test]
fn broken_projectors() {
    check_all(small_projector, PROJECTORS);
}

#[test]
fn broken_vocabularies() {
    let cases: &[Case] = &[
        (
            "pieces",
            |f| f.set("tokenizer.ggml.model", "llama".into()),
            &["model`", "`llama`", "gpt2"],
        ),
        ("no pre-tokenizer", |f| f.remove_key("tokenizer.ggml.pre"), &["ggml.pre`", "nothing"]),
        (
            "no merges",
            |f| f.remove_key("tokenizer.ggml.merges"),
            &["merges`", "an array of strings"],
        ),
        (
            "merges as text",
            |f| f.set("tokenizer.ggml.merges", "a b".into()),
            &["merges`", "the string"],
        ),
        (
            "kinds",
            |f| f.set("tokenizer.ggml.token_type", Key::I32s(vec![1; 7])),
            &["token_type`", "an array of 7", "8"],
        ),
        (
            "bos outside",
            |f| f.set("tokenizer.ggml.bos_token_id", Key::U32(8)),
            &["bos_token_id`", "found 8"],
        ),
        (
            "tokens not UTF-8",
            |f| f.set("tokenizer.ggml.tokens", Key::Texts(vec![vec![0xff]; 8])),
            &["tokens`", "string 0", "UTF-8"],
        ),
    ];
    for (what, break_it, parts) in cases {
        let mut file = small_text();
        break_it(&mut file);
        let checkpoint = open_gguf(file.bytes()).unwrap_or_else(|error| panic!("{what}: {error}"));
        let message = checkpoint.vocabulary().expect_err(what).to_string();
        for part in ["model.gguf"].iter().chain(*parts) {
            assert!(message.contains(part), "{what}: no `{part}` in: {message}");
        }
    }
}
