//! Variants of sound files: every spelling of a model loads as the same model.

use std::path::PathBuf;

use crate::support::*;
use muse_core::contract::{LayerSpec, TextSpec, TokenKind, Vocabulary, WeightSource};
use muse_core::quant::Format;
use muse_weights::Checkpoint;

fn text(checkpoint: &Checkpoint) -> &TextSpec {
    checkpoint.spec().text.as_ref().expect("a text model")
}

fn gguf(file: &Gguf) -> Checkpoint {
    open_gguf(file.bytes()).unwrap_or_else(|error| panic!("{error}"))
}

fn folder(folder: Folder) -> Checkpoint {
    open(folder.files()).unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn assert_same(a: &Checkpoint, b: &Checkpoint) {
    assert_eq!(a.spec(), b.spec());
    assert_eq!(a.tensors(), b.tensors());
    for tensor in a.tensors() {
        let (a, b) = (a.weight(&tensor.name), b.weight(&tensor.name));
        assert_eq!(a.expect("a").bytes, b.expect("b").bytes, "{}", tensor.name);
    }
}

const PATTERN: &str = "muse-glimmer.attention.sliding_window_pattern";

#[test]
fn the_window_pattern_as_array_period_or_absent() {
    let listed = gguf(&small_text());
    let sliding = LayerSpec { window: Some(8), rope: true };
    let full = LayerSpec { window: None, rope: false };
    assert_eq!(text(&listed).layers, [sliding, sliding, sliding, full]);
    for pattern in [Key::U32(4), Key::I32(4), Key::U32s(vec![1, 1, 1, 0])] {
        let mut file = small_text();
        file.set(PATTERN, pattern);
        assert_same(&gguf(&file), &listed);
    }
    let mut silent = small_text();
    silent.remove_key(PATTERN);
    assert_same(&gguf(&silent), &listed);
    let mut other = small_text();
    other.set(PATTERN, Key::U32(2));
    assert_eq!(text(&gguf(&other)).layers, [sliding, full, sliding, full]);
    let mut none_full = small_text();
    none_full.set(PATTERN, Key::U32(0));
    assert_eq!(text(&gguf(&none_full)).layers, [sliding; 4]);
}

#[test]
fn the_architecture_with_underscore_and_version_2() {
    let mut file = small_text();
    file.version = 2;
    for (name, _) in &mut file.keys {
        *name = name.replace("muse-glimmer.", "muse_glimmer.");
    }
    file.set("general.architecture", "muse_glimmer".into());
    assert_same(&gguf(&file), &gguf(&small_text()));
}

#[test]
fn another_alignment_and_unpadded_ends() {
    let mut file = small_text();
    file.alignment = 256;
    file.set("general.alignment", Key::U32(256));
    assert_same(&gguf(&file), &gguf(&small_text()));
}

#[test]
fn a_fused_qkv_is_three_tensors() {
    let mut fused = small_text();
    for layer in 0..4 {
        let bytes = ["q", "k", "v"]
            .map(|name| fused.remove(&format!("blk.{layer}.attn_{name}.weight")).bytes);
        fused.tensors.push(Tensor {
            name: format!("blk.{layer}.attn_qkv.weight"),
            dims: vec![32, 64],
            kind: 0,
            bytes: bytes.concat(),
            shift: 0,
        });
    }
    assert_same(&gguf(&fused), &gguf(&small_text()));
}

#[test]
fn rows_of_heads_are_reordered_in_any_format() {
    let (even, odd) = ((0..16).step_by(2), (1..16).step_by(2));
    let head: Vec<u8> = even.chain(odd).collect();
    let both: Vec<u8> = head.iter().copied().chain(head.iter().map(|row| row + 16)).collect();
    for (kind, format, row_bytes) in [
        (1, Format::F16, 64),
        (30, Format::Bf16, 64),
        (2, Format::Q4_0, 18),
        (3, Format::Q4_1, 20),
        (6, Format::Q5_0, 22),
        (7, Format::Q5_1, 24),
        (8, Format::Q8_0, 34),
        (20, Format::Iq4Nl, 18),
        (39, Format::Mxfp4, 17),
    ] {
        let mut file = small_text();
        let q = file.tensor("blk.0.attn_q.weight");
        q.kind = kind;
        q.bytes = (0..32).flat_map(|row| vec![row; row_bytes]).collect();
        let checkpoint = gguf(&file);
        let view = checkpoint.weight("blk.0.attn_q.weight").expect("q");
        assert_eq!((view.format, view.rows, view.cols), (format, 32, 32));
        let want: Vec<u8> = both.iter().flat_map(|&row| vec![row; row_bytes]).collect();
        assert_eq!(*view.bytes, want, "{format}");
    }

    let checkpoint = gguf(&small_text());
    let norm = checkpoint.weight("blk.0.attn_q_norm.weight").expect("a norm").to_f32();
    let stored = f32_bytes("blk.0.attn_q_norm.weight", 16);
    let stored = stored.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word));
    let stored: Vec<f32> = stored.collect();
    assert_eq!(norm, head.iter().map(|&n| stored[usize::from(n)]).collect::<Vec<_>>());
}

#[test]
fn drafters_keep_their_row_order_and_count_layers_from_zero() {
    let checkpoint = gguf(&small_drafter());
    let drafter = checkpoint.spec().drafter.as_ref().expect("a drafter");
    assert_eq!((&drafter.target_layers[..], drafter.reach), (&[0, 2][..], 8));
    let name = "blk.0.attn_q.weight";
    assert_eq!(*checkpoint.weight(name).expect("q").bytes, f32_bytes(name, 32 * 32));
    let mut written_out = small_drafter();
    written_out.set("dflash.attention.causal", Key::Bool(false));
    written_out.set("dflash.attention.scale", Key::F32(0.25));
    written_out.set("dflash.attention.sliding_window_pattern", Key::U32(0));
    assert_same(&gguf(&written_out), &checkpoint);
}

#[test]
fn a_projector_file() {
    let checkpoint = gguf(&small_projector());
    let vision = checkpoint.spec().vision.as_ref().expect("a tower");
    assert_eq!((vision.table, vision.projector, vision.out), ((3, 3), 24, 32));
    let kernel = checkpoint.weight("v.patch_embd.weight").expect("the kernel");
    assert_eq!((kernel.rows, kernel.cols), (16, 12));
    let bias = checkpoint.weight("v.blk.0.attn_k.bias").expect("a bias");
    assert_eq!((bias.rows, bias.cols), (1, 16));
}

#[test]
fn any_part_of_a_split_file_opens_all() {
    let whole = small_text();
    let mut parts = [whole.clone(), whole.clone(), whole.clone()];
    for (number, part) in parts.iter_mut().enumerate() {
        if number > 0 {
            part.keys.clear();
        }
        part.set("split.no", Key::U32(number as u32));
        part.set("split.count", Key::U32(3));
        part.set("split.tensors.count", Key::I32(whole.tensors.len() as i32));
        let mut i = 0;
        part.tensors.retain(|_| {
            i += 1;
            (i - 1) % 3 == number
        });
    }
    let folder = tempfile::tempdir().expect("a folder");
    let name = |number: usize| format!("small-{:05}-of-00003.gguf", number + 1);
    for (number, part) in parts.iter().enumerate() {
        std::fs::write(folder.path().join(name(number)), part.bytes()).expect("written");
    }
    for number in 0..3 {
        let checkpoint = Checkpoint::open(&folder.path().join(name(number)));
        assert_same(&checkpoint.unwrap_or_else(|error| panic!("{error}")), &gguf(&whole));
    }
    std::fs::remove_file(folder.path().join(name(1))).expect("removed");
    let error = Checkpoint::open(&folder.path().join(name(2))).expect_err("a part is missing");
    assert!(error.to_string().contains("small-00002-of-00003.gguf"), "{error}");
}

#[test]
fn shards_are_one_checkpoint() {
    let sharded = open(small_target().sharded()).unwrap_or_else(|error| panic!("{error}"));
    assert_same(&sharded, &folder(small_target()));
}

#[test]
fn without_lists_the_pattern_counts_backward() {
    let checkpoint = folder(small_target());
    let sliding = LayerSpec { window: Some(8), rope: true };
    let full = LayerSpec { window: None, rope: false };
    assert_eq!(text(&checkpoint).layers, [full, sliding, sliding, sliding, full]);
}

#[test]
fn window_and_rope_are_independent() {
    let mut target = small_target();
    let (slide, full) = ("sliding_attention", "full_attention");
    target.text()["layer_types"] = serde_json::json!([slide, full, slide, full, slide]);
    target.text()["layer_rope_theta"] = serde_json::json!([0, 0, 500_000.0, 500_000.0, null]);
    let layer = |window, rope| LayerSpec { window, rope };
    assert_eq!(
        text(&folder(target)).layers,
        [
            layer(Some(8), false),
            layer(None, false),
            layer(Some(8), true),
            layer(None, true),
            layer(Some(8), false),
        ]
    );
}

#[test]
fn sampling_defaults_and_stop_tokens() {
    let mut target = small_target();
    assert_eq!(folder(target.clone()).generation().stop, [3]);
    target.config["eos_token_id"] = serde_json::json!([3, 5]);
    assert_eq!(folder(target.clone()).generation().stop, [3, 5]);
    let published = r#"{"do_sample": true, "temperature": 1.0, "top_p": 0.95, "top_k": 64,
        "eos_token_id": [5, 3]}"#;
    let mut sampled = target.clone();
    sampled.other("generation_config.json", published);
    let sampled = folder(sampled);
    let generation = sampled.generation();
    assert_eq!((generation.temperature, generation.top_p), (Some(1.0), Some(0.95)));
    assert_eq!((generation.top_k, &generation.stop[..]), (Some(64), &[5, 3][..]));
    target.other("generation_config.json", r#"{"do_sample": false, "temperature": 1.0}"#);
    assert_eq!(folder(target).generation().temperature, Some(0.0));
}

#[test]
fn eom_is_never_a_stop_token() {
    let mut file = small_text();
    assert_eq!(gguf(&file).generation().stop, [3, 5]);
    assert_eq!(text(&gguf(&file)).image_token, Some(6));
    file.set("tokenizer.ggml.eos_token_id", Key::U32(4));
    file.remove_key("tokenizer.ggml.eot_token_id");
    assert_eq!(gguf(&file).generation().stop, [3, 5]);
    let mut target = small_target();
    target.config["eos_token_id"] = serde_json::json!([3, 4, 5]);
    target.other("tokenizer.json", r#"{"added_tokens": [{"id": 4, "content": "<|eom|>"}]}"#);
    assert_eq!(folder(target).generation().stop, [3, 5]);
}

#[test]
fn padding_behind_the_last_tensor_is_ignored() {
    let sound = small_text().bytes();
    for padding in [1, 31, 32, 100, 4096] {
        let padded = [&sound[..], &vec![7; padding]].concat();
        let padded = open_gguf(padded).unwrap_or_else(|error| panic!("{padding}: {error}"));
        assert_same(&padded, &gguf(&small_text()));
    }
}

#[test]
fn unused_keys_may_hold_anything() {
    let mut file = small_text();
    file.set("general.name", Key::bytes(b"na\xefve"));
    file.set("general.tags", Key::Texts(vec![vec![0xff], vec![0xc3, 0x28]]));
    file.set("general.flag", Key::Raw(7, vec![2]));
    file.set("NAME", Key::bytes(b"x"));
    let mut bytes = file.bytes();
    let at = bytes.windows(4).position(|window| window == b"NAME").expect("the key");
    bytes[at..at + 4].copy_from_slice(b"\xffAME");
    let checkpoint = open_gguf(bytes).unwrap_or_else(|error| panic!("{error}"));
    assert_same(&checkpoint, &gguf(&small_text()));
}

/// Without types, or with all of them normal, `<|name|>` is a special token.
#[test]
fn special_tokens_without_types_are_found_by_their_text() {
    let kinds = |file: &Gguf| match gguf(file).vocabulary().expect("readable") {
        Some(Vocabulary::Bpe { kinds, .. }) => kinds,
        other => panic!("{other:?}"),
    };
    let (normal, control) = (TokenKind::Normal, TokenKind::Control);
    let expected = [normal, normal, control, control, control, control, control, normal];
    assert_eq!(kinds(&small_text()), expected);
    let mut silent = small_text();
    silent.remove_key("tokenizer.ggml.token_type");
    assert_eq!(kinds(&silent), expected);
    let mut all_normal = small_text();
    all_normal.set("tokenizer.ggml.token_type", Key::I32s(vec![1; 8]));
    assert_eq!(kinds(&all_normal), expected);
    for file in [silent, all_normal] {
        assert_eq!(gguf(&file).generation().stop, [3, 5]);
    }
}

#[test]
fn json_files_may_begin_with_a_byte_order_mark() {
    const TOKENIZER: &str = r#"{"added_tokens": [{"id": 5, "content": "<|eot|>"}]}"#;
    let marked = |text: &str| [b"\xef\xbb\xbf", text.as_bytes()].concat();
    let mut target = small_target();
    target.other("generation_config.json", r#"{"temperature": 0.5}"#);
    target.other("tokenizer.json", TOKENIZER);
    target.other("chat_template.jinja", "{{ bos_token }}");
    let plain = folder(target.clone());
    let mut files = target.files();
    for (name, bytes) in &mut files {
        if !name.ends_with(".safetensors") {
            bytes.splice(..0, *b"\xef\xbb\xbf");
        }
    }
    let checkpoint = open(files).unwrap_or_else(|error| panic!("{error}"));
    assert_same(&checkpoint, &plain);
    assert_eq!(checkpoint.generation(), plain.generation());
    assert_eq!(checkpoint.chat_template().expect("readable").as_deref(), Some("{{ bos_token }}"));
    let vocabulary = checkpoint.vocabulary().expect("readable");
    assert!(
        matches!(vocabulary, Some(Vocabulary::HuggingFace(json)) if json == TOKENIZER.as_bytes())
    );
    let mut sharded = small_target().sharded();
    for (name, bytes) in &mut sharded {
        if name.ends_with(".json") {
            *bytes = marked(std::str::from_utf8(bytes).expect("JSON"));
        }
    }
    assert_same(&open(sharded).expect("a checkpoint"), &folder(small_target()));
}

/// A stop token that ends texts alone would let answers run past the end of their turn.
#[test]
fn tokens_that_end_an_answer_always_stop() {
    let mut target = small_target();
    target.other(
        "tokenizer.json",
        r#"{"added_tokens": [{"id": 3, "content": "<|end_of_text|>"},
            {"id": 4, "content": "<|eom|>"}, {"id": 5, "content": "<|eot|>"},
            {"id": 99, "content": "<|eot|>"}]}"#,
    );
    for (eos, expected) in [
        (serde_json::json!(3), [3, 5]),
        (serde_json::json!([5]), [5, 3]),
        (serde_json::json!([4, 5, 3]), [5, 3]),
        (serde_json::json!(null), [3, 5]),
    ] {
        let mut target = target.clone();
        target.config["eos_token_id"] = eos.clone();
        target.text()["eos_token_id"] = serde_json::json!(null);
        assert_eq!(folder(target).generation().stop, expected, "{eos}");
    }
}

#[test]
fn tensors_without_effect_are_ignored() {
    let mut file = small_text();
    file.tensors.push(Tensor {
        name: "rope_freqs.weight".to_owned(),
        dims: vec![8],
        kind: 0,
        bytes: [1.0_f32; 8].iter().flat_map(|one| one.to_le_bytes()).collect(),
        shift: 0,
    });
    assert_eq!(gguf(&file).ignored(), ["rope_freqs.weight"]);
    let mut target = small_target();
    let buffer = "model.language_model.rotary_emb.inv_freq";
    target.tensors.push(HfTensor::f32(buffer, &[8]));
    assert_eq!(folder(target).ignored(), [buffer]);
}

#[test]
fn a_broken_tokenizer_config_is_ignored() {
    for config in ["?", "[]", r#"{"chat_template": [{"name": "default", "template": "x"}]}"#] {
        let mut target = small_target();
        target.other("tokenizer_config.json", config);
        assert_same(&folder(target), &folder(small_target()));
    }
}

#[test]
fn half_precision_weights() {
    let mut target = small_target();
    let name = "model.language_model.layers.0.input_layernorm.weight";
    *target.tensor(name) = HfTensor {
        name: name.to_owned(),
        dtype: "F16",
        shape: vec![32],
        bytes: [0x00, 0x3c].repeat(32),
    };
    let checkpoint = folder(target);
    let norm = checkpoint.weight("blk.0.attn_norm.weight").expect("a norm");
    assert_eq!((norm.format, norm.to_f32()), (Format::F32, vec![2.0; 32]));
}

#[test]
fn qk_scale_factor_applies_to_queries_only() {
    let mut target = small_target();
    target.text()["qk_scale_factor"] = 2.5.into();
    let checkpoint = folder(target);
    for (name, value) in [("q", 2.5), ("k", 1.0)] {
        let norm = checkpoint.weight(&format!("blk.1.attn_{name}_norm.weight")).expect("a norm");
        assert_eq!(norm.to_f32(), [value; 16]);
    }
}

#[test]
fn files_that_are_part_of_the_program() {
    static CONFIG: &[u8] = include_bytes!("../../../muse-serve/assets/nano/assistant/config.json");
    static WEIGHTS: &[u8] =
        include_bytes!("../../../muse-serve/assets/nano/assistant/model.safetensors");
    let files = [("config.json", CONFIG), ("model.safetensors", WEIGHTS)];
    let checkpoint = Checkpoint::from_memory(&files).expect("nano's drafter");
    let folder: PathBuf = muse_testkit::nano_dir().join("assistant");
    assert_same(&checkpoint, &Checkpoint::open(&folder).expect("nano's drafter"));
}
