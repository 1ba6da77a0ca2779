//! Broken HuggingFace folders: each is refused with the file, the location, what was found and
//! what was expected.

use serde_json::json;

use crate::support::*;

/// Breaks a sound folder in one way; the error must contain these parts.
type Case = (&'static str, fn(&mut Folder), &'static [&'static str]);

#[track_caller]
fn check(files: Vec<(String, Vec<u8>)>, what: &str, parts: &[&str]) {
    let Err(error) = open(files) else { panic!("{what}: was opened") };
    let message = error.to_string();
    for part in ["found", "expected"].iter().chain(parts) {
        let advice = matches!(error, muse_weights::Error::Format { .. });
        assert!(advice || message.contains(part), "{what}: no `{part}` in: {message}");
    }
}

fn check_all(folder: fn() -> Folder, cases: &[Case]) {
    for (what, break_it, parts) in cases {
        let mut folder = folder();
        open(folder.clone().files()).unwrap_or_else(|error| panic!("{what}: before: {error}"));
        break_it(&mut folder);
        check(folder.files(), what, parts);
    }
}

const CONTAINER: &[Case] = &[
    ("empty", |f| f.other("model.safetensors", ""), &["model.safetensors", "0 bytes", "8 bytes"]),
    ("short", |f| f.other("model.safetensors", [9; 5]), &["model.safetensors", "5 bytes"]),
    (
        "header past the end",
        |f| f.other("model.safetensors", 100_u64.to_le_bytes()),
        &["header length", "100 bytes", "at most 0"],
    ),
    (
        "header without end",
        |f| f.other("model.safetensors", u64::MAX.to_le_bytes()),
        &["18446744073709551615"],
    ),
    (
        "pointer",
        |f| f.other("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid"),
        &["Git LFS pointer"],
    ),
    (
        "header not UTF-8",
        |f| f.other("model.safetensors", [&4_u64.to_le_bytes()[..], b"{\xff\xff}"].concat()),
        &["header", "UTF-8"],
    ),
    ("header not JSON", |f| f.rewrite_header(|h| h.replace(':', ";")), &["header", "line 1"]),
    ("header a list", |f| f.rewrite_header(|h| format!("[{h}]")), &["header", "object of tensors"]),
    (
        "deep header",
        |f| f.rewrite_header(|_| format!(r#"{{"a":{}"#, "[".repeat(100_000))),
        &["header"],
    ),
    (
        "tensor twice",
        |f| {
            let first = f.tensors[0].clone();
            f.tensors[1].name = "x".repeat(first.name.len());
            f.rewrite_header(|h| h.replace(&"x".repeat("lm_head.weight".len()), "lm_head.weight"));
        },
        &["`lm_head.weight`", "two tensors"],
    ),
    ("metadata", |f| f.rewrite_header(|h| h.replace(r#""pt""#, "1")), &["__metadata__", "strings"]),
    (
        "no dtype",
        |f| f.rewrite_header(|h| h.replacen("dtype", "type", 1)),
        &["`lm_head.weight`", "dtype"],
    ),
    (
        "dtype a number",
        |f| f.rewrite_header(|h| h.replacen(r#""F32""#, "32", 1)),
        &["`lm_head.weight`", "dtype"],
    ),
    ("FP8", |f| f.tensors[0].dtype = "F8_E4M3", &["`lm_head.weight`", "1024 bytes", "F8_E4M3"]),
    ("unknown dtype", |f| f.tensors[0].dtype = "F6", &["`lm_head.weight`", "F6", "BF16"]),
    (
        "negative shape",
        |f| f.rewrite_header(|h| h.replacen("[8,32]", "[-8,32]", 1)),
        &["`lm_head.weight`", "-8"],
    ),
    (
        "shape overflow",
        |f| f.rewrite_header(|h| h.replacen("[8,32]", "[9223372036854775808,4]", 1)),
        &["`lm_head.weight`", "fits in memory"],
    ),
    (
        "bytes overflow",
        |f| f.rewrite_header(|h| h.replacen("[8,32]", "[4611686018427387905,1]", 1)),
        &["`lm_head.weight`", "1024 bytes"],
    ),
    (
        "shape of more",
        |f| f.rewrite_header(|h| h.replacen("[8,32]", "[8,33]", 1)),
        &["`lm_head.weight`", "1024 bytes", "[8, 33]"],
    ),
    (
        "backward",
        |f| f.rewrite_header(|h| h.replacen("[0,1024]", "[1024,0]", 1)),
        &["`lm_head.weight`", "1024..0"],
    ),
    (
        "past the end",
        |f| f.rewrite_header(|h| h.replacen("[0,1024]", "[0,99999999]", 1)),
        &["`lm_head.weight`", "a range inside"],
    ),
    (
        "three offsets",
        |f| f.rewrite_header(|h| h.replacen("[0,1024]", "[0,1024,1024]", 1)),
        &["`lm_head.weight`"],
    ),
    (
        "overlap",
        |f| f.rewrite_header(|h| h.replacen("[1024,2048]", "[0,1024]", 1)),
        &["an overlap with"],
    ),
    ("gap", |f| drop(f.tensors[0].bytes.splice(..0, [0; 4])), &["1028 bytes"]),
    (
        "gap in the data",
        |f| {
            let gone = format!(r#""{}""#, f.tensors[1].name);
            f.rewrite_header(|h| {
                let at = h.find(&gone).expect("the tensor");
                let end = at + h[at..].find("},").expect("its end") + 2;
                format!("{}{}", &h[..at], &h[end..])
            });
        },
        &["model.language_model.norm.weight", "a gap after lm_head.weight", "begin at 1024"],
    ),
    (
        "trailing",
        |f| {
            let mut bytes = safetensors(&f.tensors);
            bytes.push(0);
            f.other("model.safetensors", bytes);
        },
        &["1 bytes after the last tensor"],
    ),
];

#[test]
fn broken_containers() {
    check_all(small_target, CONTAINER);
}

const SETTINGS: &[Case] = &[
    ("not JSON", |f| f.other("config.json", "{"), &["config.json", "EOF"]),
    (
        "UTF-16",
        |f| f.other("config.json", *b"\xff\xfe{\0"),
        &["config.json", "text in UTF-16", "UTF-8"],
    ),
    ("a list", |f| f.other("config.json", "[]"), &["config.json", "a JSON object"]),
    ("deep", |f| f.other("config.json", "[".repeat(100_000)), &["config.json", "a JSON object"]),
    (
        "no kind",
        |f| f.config["model_type"] = json!(null),
        &["`model_type`", "nothing", "muse_glimmer"],
    ),
    ("another kind", |f| f.config["model_type"] = "llama".into(), &["`model_type`", "`llama`"]),
    ("no text", |f| f.config["text_config"] = json!(null), &["`text_config`", "nothing"]),
    ("text a list", |f| f.config["text_config"] = json!([1]), &["`text_config`", "an array of 1"]),
    (
        "quantized",
        |f| f.config["quantization_config"] = json!({"quant_method": "fp8"}),
        &["`quantization_config`", "BF16"],
    ),
    (
        "width as text",
        |f| f.text()["hidden_size"] = "32".into(),
        &["`text_config.hidden_size`", r#"\"32\""#],
    ),
    (
        "width negative",
        |f| f.text()["hidden_size"] = (-32).into(),
        &["`text_config.hidden_size`", "-32"],
    ),
    (
        "width broken",
        |f| f.text()["hidden_size"] = 32.5.into(),
        &["`text_config.hidden_size`", "32.5"],
    ),
    ("width huge", |f| f.text()["hidden_size"] = json!(u64::MAX), &["18446744073709551615"]),
    (
        "no heads",
        |f| f.text()["num_attention_heads"] = 0.into(),
        &["num_attention_heads`", "found 0"],
    ),
    (
        "K/V heads",
        |f| f.text()["num_key_value_heads"] = 3.into(),
        &["num_key_value_heads`", "divisor of the 2"],
    ),
    ("odd head", |f| f.text()["head_dim"] = 15.into(), &["head_dim`", "even"]),
    (
        "no scale of queries",
        |f| f.text()["qk_scale_factor"] = json!(null),
        &["qk_scale_factor`", "nothing"],
    ),
    ("eps zero", |f| f.text()["post_norm_eps"] = 0.0.into(), &["post_norm_eps`", "found 0"]),
    ("eps huge", |f| f.text()["rms_norm_eps"] = 1e300.into(), &["rms_norm_eps`", "1000000"]),
    (
        "kinds short",
        |f| f.text()["layer_types"] = json!(["full_attention"]),
        &["layer_types`", "an array of 1", "5, one per layer"],
    ),
    (
        "kinds unknown",
        |f| f.text()["layer_types"] = json!(["full_attention", "x", "x", "x", "x"]),
        &["layer_types`", r#"\"x\""#, "sliding_attention"],
    ),
    (
        "rope list short",
        |f| f.text()["layer_rope_theta"] = json!([0, 1]),
        &["layer_rope_theta`", "an array of 2"],
    ),
    (
        "rope list of texts",
        |f| f.text()["layer_rope_theta"] = json!(["0", 1, 1, 1, 0]),
        &["layer_rope_theta`", "numbers"],
    ),
    ("no window", |f| f.text()["sliding_window"] = 0.into(), &["sliding_window`", "found 0"]),
    (
        "rope kind",
        |f| f.text()["rope_parameters"]["rope_type"] = "yarn".into(),
        &["rope_parameters.rope_type`", "`yarn`"],
    ),
    ("no rope", |f| f.text()["rope_parameters"] = json!(null), &["rope_parameters`", "nothing"]),
    ("biases", |f| f.text()["attention_bias"] = true.into(), &["attention_bias`", "true"]),
    ("tied", |f| f.text()["tie_word_embeddings"] = true.into(), &["tie_word_embeddings`", "true"]),
    (
        "activation",
        |f| f.text()["hidden_activation"] = "gelu".into(),
        &["hidden_activation`", "`gelu`", "silu"],
    ),
    ("image token", |f| f.config["image_token_id"] = "x".into(), &["`image_token_id`"]),
    (
        "stop outside",
        |f| f.config["eos_token_id"] = json!([3, 8]),
        &["`eos_token_id`", "found 8", "below"],
    ),
    ("stop as text", |f| f.config["eos_token_id"] = "3".into(), &["`eos_token_id`", "a token id"]),
    ("defaults not JSON", |f| f.other("generation_config.json", "?"), &["generation_config.json"]),
    (
        "temperature",
        |f| f.other("generation_config.json", r#"{"temperature": "hot"}"#),
        &["`temperature`", "hot"],
    ),
    ("top p", |f| f.other("generation_config.json", r#"{"top_p": 1.5}"#), &["`top_p`", "1.5"]),
    (
        "vision without layers",
        |f| f.config["vision_config"] = json!({}),
        &["`vision_config.num_hidden_layers`", "nothing"],
    ),
];

#[test]
fn broken_settings() {
    check_all(small_target, SETTINGS);
}

const TENSORS: &[Case] = &[
    ("missing", |f| drop(f.tensors.remove(0)), &["`lm_head.weight`", "no such tensor", "[8, 32]"]),
    (
        "shape",
        |f| f.text()["vocab_size"] = 9.into(),
        &["`model.language_model.embed_tokens.weight`", "[8, 32]", "[9, 32]"],
    ),
    (
        "fewer layers",
        |f| f.text()["num_hidden_layers"] = 4.into(),
        &["layers.4.", "only tensors of the model"],
    ),
    (
        "bias",
        |f| {
            f.tensors
                .push(HfTensor::f32("model.language_model.layers.0.self_attn.q_proj.bias", &[32]))
        },
        &["q_proj.bias`", "no such bias"],
    ),
    (
        "stray",
        |f| f.tensors.push(HfTensor::f32("extra", &[1])),
        &["`extra`", "only tensors of the model"],
    ),
    ("integers", |f| f.tensors[0].dtype = "I32", &["`lm_head.weight`", "I32"]),
];

#[test]
fn broken_tensors() {
    check_all(small_target, TENSORS);
}

const ASSISTANTS: &[Case] = &[
    (
        "full layer",
        |f| f.config["layer_types"] = json!(["full_attention"]),
        &["`layer_types`", "`full_attention`"],
    ),
    (
        "no targets",
        |f| f.config["target_layer_ids"] = json!([]),
        &["`target_layer_ids`", "no layers"],
    ),
    (
        "targets",
        |f| f.config["target_layer_ids"] = json!([2, 2]),
        &["`target_layer_ids`", "[2, 2]", "increasing"],
    ),
    ("mask", |f| f.config["mask_token_id"] = json!(null), &["`mask_token_id`", "nothing"]),
    ("block", |f| f.config["block_size"] = 4096.into(), &["`block_size`", "4096"]),
    (
        "norm",
        |f| f.tensor("layers.0.self_attn.q_norm.weight").shape = vec![4, 4],
        &["q_norm.weight`", "[4, 4]", "[16]"],
    ),
];

#[test]
fn broken_assistants() {
    check_all(small_assistant, ASSISTANTS);
}

/// The files of a sharded folder; `edit` gets each name and its bytes.
fn sharded(edit: impl Fn(&str, &mut Vec<u8>)) -> Vec<(String, Vec<u8>)> {
    let mut files = small_target().sharded();
    files.iter_mut().for_each(|(name, bytes)| edit(name, bytes));
    files
}

fn replace(bytes: &mut Vec<u8>, from: &str, to: &str) {
    let text = String::from_utf8(std::mem::take(bytes)).expect("JSON");
    assert!(text.contains(from));
    *bytes = text.replace(from, to).into_bytes();
}

#[test]
fn broken_shards() {
    const INDEX: &str = "model.safetensors.index.json";
    let indexed = |from: &'static str, to: &'static str| {
        sharded(move |name, bytes| {
            if name == INDEX {
                replace(bytes, from, to);
            }
        })
    };
    check(indexed("weight_map", "map"), "no map", &[INDEX, "weight_map"]);
    check(indexed("model-00002", "../model-00002"), "path", &["../model-00002", "same folder"]);
    check(indexed("model-00002", "/model-00002"), "root", &["/model-00002", "same folder"]);
    check(indexed("model-00002", "model-00003"), "no shard", &["model-00003", "a shard"]);
    check(indexed("\"lm_head.weight", "\"other"), "stray", &["`lm_head.weight`", "this shard"]);
    check(
        indexed(
            "{\"lm_head.weight",
            "{\"ghost\":\"model-00001-of-00002.safetensors\",\"lm_head.weight",
        ),
        "ghost",
        &["`ghost`"],
    );
    let mut gone = small_target().sharded();
    gone.retain(|(name, _)| !name.contains("00002-of"));
    check(gone, "missing shard", &["model-00002-of-00002.safetensors", INDEX]);
}

#[test]
fn folders_without_their_files() {
    let without = |gone: &str| {
        let mut files = small_target().files();
        files.retain(|(name, _)| name != gone);
        files
    };
    check(without("config.json"), "no config", &["`config.json`"]);
    check(without("model.safetensors"), "no weights", &["no weights", "model.safetensors"]);
    let mut beside = without("model.safetensors");
    beside.push(("notes.txt".to_owned(), vec![0]));
    check(beside, "other files", &["no weights"]);
    let mut pickled = without("model.safetensors");
    pickled.push(("pytorch_model.bin".to_owned(), vec![0]));
    check(pickled, "pickled", &["only pickled weights"]);
    check(Vec::new(), "nothing", &["`config.json`"]);
}

#[test]
fn paths_that_are_no_checkpoint() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = |name: &str| {
        let error = muse_weights::Checkpoint::open(&folder.path().join(name)).expect_err(name);
        error.to_string()
    };
    assert!(open("absent").contains("cannot be read"));
    assert!(open("").contains("no file `config.json`"));
    std::fs::write(folder.path().join("a.gguf"), b"x").expect("written");
    assert!(open("").contains("1 GGUF files") && open("").contains("`a.gguf`"));
    std::fs::write(folder.path().join("model.safetensors"), b"x").expect("written");
    assert!(open("model.safetensors").contains("the folder that holds it"));
}
