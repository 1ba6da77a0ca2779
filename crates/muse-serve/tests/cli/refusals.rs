//! `muse inspect`, and what every command refuses.

use super::*;

#[test]
fn inspect_tells_of_folders_and_files() {
    let out = muse(&["inspect", path(&nano_dir().join("target"))]).ok();
    for word in ["muse", "bf16", "1024"] {
        assert!(out.to_lowercase().contains(word), "no {word} in {out}");
    }
    let out = muse(&["inspect", path(&golden_dir().join("nano/gguf/target.q8_0.gguf"))]).ok();
    assert!(out.to_lowercase().contains("q8_0"), "{out}");
}

#[test]
fn inspect_gives_json_with_the_memory_of_several_lengths() {
    let report = muse(&["inspect", path(&nano_dir().join("target")), "--json"]).json();
    assert_eq!(report["architecture"], "muse_glimmer");
    assert_eq!(report["text"]["layers"], 8);
    assert_eq!(report["generation"]["stop"], json!([897, 904]));
    assert_eq!(report["tokenizer"]["special_tokens"]["eot"], 904);
    assert_eq!(report["formats"][0]["format"], "BF16");
    assert_eq!((&report["drafter"], &report["problem"]), (&Value::Null, &Value::Null));
    let memory = report["memory"].as_array().expect("estimates");
    let max = &report["text"]["max_positions"];
    assert_eq!(&memory.last().expect("an estimate")["context"], max);
    for estimate in memory {
        let part = |key: &str| estimate[key].as_u64().expect("bytes");
        assert_eq!(part("total"), part("weights") + part("kv_cache") + part("scratch"));
        // Two K/V heads of 64 in each of two full layers, K and V as bf16.
        assert!(part("kv_cache") >= part("context") * 2 * 2 * 2 * 64 * 2, "{estimate}");
    }
    // A part of the weights is the vision tower's, which is not loaded.
    let (weights, bytes) = (&memory[0]["weights"], &report["bytes"]);
    assert!(weights.as_u64() > Some(1 << 20) && weights.as_f64() < bytes.as_f64().map(|b| 2.0 * b));
    let draft = muse(&["inspect", path(&nano_dir().join("assistant")), "--json"]).json();
    assert_eq!((&draft["text"], &draft["memory"]), (&Value::Null, &json!([])));
    assert_eq!(draft["drafter"]["draft_block"], 16);
    let text = muse(&["inspect", path(&nano_dir().join("target"))]).ok();
    assert!(text.contains("memory   ") && text.contains("GB for"), "{text}");
}

#[test]
fn broken_files_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("half.gguf");
    let whole = std::fs::read(golden_dir().join("nano/gguf/target.q8_0.gguf")).expect("a file");
    std::fs::write(&file, &whole[..whole.len() / 2]).expect("a file");
    muse(&["inspect", path(&file)]).refused(&["half.gguf"]);
    muse(&["chat", "--model", path(&file), "Hello"]).refused(&["half.gguf"]);
    let nowhere = folder.path().join("nowhere");
    muse(&["inspect", path(&nowhere)]).refused(&["nowhere"]);
    muse(&["chat", "--model", path(&nowhere), "Hello"]).refused(&["nowhere"]);
    muse(&["chat", "--model", path(folder.path()), "Hello"]).refused(&["half.gguf"]);
    for command in ["inspect", "bench"] {
        muse(&[command, "owner/model"]).refused(&["owner/model", "nothing is downloaded"]);
    }
    muse(&["chat", "--model=~/muse", "Hello"]).refused(&["~/muse", "whole path"]);
}

#[test]
fn an_output_that_takes_nothing_is_named() {
    let nano = nano_dir().join("target");
    for args in [
        &["inspect", path(&nano)][..],
        &["chat", "Hello"],
        &["completions", "bash"],
        &["generate", "--ids", "5", "-n", "1"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("a full device");
        let mut command = Command::new(env!("CARGO_BIN_EXE_muse"));
        let output = command.args(args).stdin(Stdio::null()).stdout(full).output();
        let output = output.expect("muse runs");
        let err = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(1), "{args:?}: {err}");
        assert!(err.starts_with("error: standard output: ") && err.contains("space"), "{err}");
    }
}

/// A pipe without a writer would be waited for without end.
#[test]
fn only_regular_files_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("nowhere", &link).expect("linked");
    let out = folder.path().join("out.gguf");
    let nano = nano_dir().join("target");
    for (file, found) in [
        (path(&fifo), "a FIFO"),
        ("/dev/zero", "a device"),
        (path(&link), "a symbolic link to `nowhere`"),
    ] {
        for args in [
            &["inspect", file][..],
            &["chat", "Hello", "--model", file],
            &["chat", "Hello", "--draft", file],
            &["chat", "Hello", "--config", file],
            &["chat", "Hello", "--chat-template", file],
            &["quantize", file, path(&out), "--type", "q8_0"],
            &["quantize", path(&nano), path(&out), "--type", "q8_0", "--imatrix", file],
            &["quantize", path(&nano), path(&out), "--type", "q8_0", "--vocabulary", file],
        ] {
            muse(args).refused(&[file, found]);
        }
    }
}

#[test]
fn models_that_do_not_fit_are_refused() {
    let (nano, tiny) = (nano_dir().join("target"), golden_dir().join("tiny/assistant"));
    muse(&["chat", "--model", path(&nano), "--draft", path(&tiny), "Hello"])
        .refused(&["drafter", "128", "256"]);
    muse(&["chat", "--model", path(&tiny), "Hello"]).refused(&["text model"]);
    muse(&["chat", "--draft", path(&nano), "Hello"]).refused(&["drafter"]);
    let model = self::tiny();
    muse(&["chat", "--model", path(&model), "Hello"]).refused(&["tokenizer", "generate"]);
    muse(&["generate", "--model", path(&model), "--prompt", "Hello"]).refused(&["--ids"]);
    let mmproj = golden_dir().join("nano/gguf/mmproj.bf16.gguf");
    muse(&["chat", "--mmproj", path(&mmproj), "Hello"]).refused(&["--mmproj", "pictures"]);
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    muse(&["generate", "--ids", "5,4096"]).refused(&["4096", "1024"]);
    muse(&["generate", "--ids", "5", "--top-p", "7"]).refused(&["top_p"]);
    muse(&["generate", "--ids", "5", "--max-draft", "99"]).refused(&["--max-draft is 99", "15"]);
    let long = vec!["5"; 200].join(",");
    muse(&["generate", "--ids", &long, "--context", "128"]).refused(&["200", "128"]);
    muse(&["generate", "--ids", "5", "--logits", "/nowhere/logits"])
        .refused(&["/nowhere/logits", "`/nowhere` does not exist"]);
    muse(&["chat", "--date", "tomorrow", "Hello"]).refused(&["tomorrow"]);
    muse(&["chat", "--date", "2026-02-30", "Hello"]).refused(&["2026-02-30", "YYYY-MM-DD"]);
    muse(&["chat", "--temperature", "-1", "Hello"]).refused(&["temperature: found -1"]);
    muse_with(&["chat"], b"caf\xe9\n").refused(&["standard input", "UTF-8"]);
    muse(&["chat", "--server", "127.0.0.1:1", "Hello"]).refused(&["127.0.0.1:1", "muse serve"]);
    muse(&["chat", "--server", "https://127.0.0.1:1", "Hello"]).refused(&["https", "no TLS"]);
    muse(&["chat", "--config", "/nowhere/muse.toml", "Hello"]).refused(&["/nowhere/muse.toml"]);
}

#[test]
fn files_that_exist_are_not_replaced() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "precious").expect("written");
    let logits = ["generate", "--ids", "5", "--max-tokens", "1", "--logits", path(file.path())];
    muse(&logits).refused(&[path(file.path()), "never overwritten"]);
    assert_eq!(std::fs::read(file.path()).expect("still there"), b"precious");
    let device = ["generate", "--ids", "5", "--max-tokens", "1", "--logits", "/dev/null"];
    muse(&device).refused(&["/dev/null", "never overwritten"]);
}

#[test]
fn bad_usage_ends_with_2() {
    for args in [
        &["dance"][..],
        &["chat", "--json"],
        &["chat", "--kv", "f64", "Hello"],
        &["chat", "--reasoning", "heroic", "Hello"],
        &["chat", "--server", "127.0.0.1:1", "--kv", "f32", "Hello"],
        &["generate"],
        &["generate", "--ids", "1,x"],
        &["generate", "--ids", "1", "--prompt", "x"],
        &["generate", "--ids", "1", "--greedy", "--temperature", "1"],
        &["chat", "--no-draft", "--max-draft", "3", "Hello"],
        &["inspect"],
        &["serve", "--grpc", "somewhere"],
    ] {
        let Said { code, out, err } = muse(args);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}: {err}");
        assert!(err.starts_with("error: "), "{err}");
    }
}

#[test]
fn scores_that_are_not_numbers_end_an_answer() {
    let (source, folder) = (nano_dir().join("target"), tempfile::tempdir().expect("a folder"));
    for entry in std::fs::read_dir(source).expect("nano") {
        let entry = entry.expect("a file");
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).expect("a copy");
    }
    let file = folder.path().join("model.safetensors");
    let mut bytes = std::fs::read(&file).expect("weights");
    let start = 8 + u64::from_le_bytes(bytes[..8].try_into().expect("a length")) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..start]).expect("a header");
    let at = &header["model.language_model.norm.weight"]["data_offsets"];
    let offset = |i: usize| start + at[i].as_u64().expect("an offset") as usize;
    bytes[offset(0)..offset(1)].fill(0xff);
    std::fs::write(&file, bytes).expect("written");
    muse(&["chat", "--model", path(folder.path()), "Hello"]).refused(&["not numbers", "damaged"]);
}
