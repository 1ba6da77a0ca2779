//! Compares written files with those that llama.cpp's `gguf` package wrote of the same checkpoint,
//! byte for byte.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use muse_core::quant::Format;
use muse_testkit::{golden_dir, nano_dir};

use super::{ModelKind, QuantizeOptions, quantize};
use crate::checkpoint::Checkpoint;
use crate::files::Files;
use crate::gguf::GgufFiles;

fn gguf(path: &Path) -> GgufFiles {
    match Files::open(path) {
        Ok(Files::Gguf(files)) => files,
        Ok(Files::HuggingFace(_)) => panic!("{} is no GGUF file", path.display()),
        Err(error) => panic!("{error}"),
    }
}

/// The encoded values of the keys by name.
fn keys(files: &GgufFiles) -> BTreeMap<&str, &[u8]> {
    let bytes = &files.files[0].bytes;
    files
        .header
        .key_ranges
        .iter()
        .map(|(key, range)| (key.as_str(), &bytes[range.clone()]))
        .collect()
}

fn golden(name: &str) -> PathBuf {
    golden_dir().join("nano/gguf").join(name)
}

/// Writes a model of nano and compares it with the golden file; `ours_only` lists the keys that the
/// golden file lacks.
fn check(folder: &str, kind: ModelKind, format: Format, name: &str, ours_only: &[&str]) {
    let folder = nano_dir().join(folder);
    let checkpoint = Checkpoint::open(&folder).expect("nano");
    let target = Checkpoint::open(&nano_dir().join("target")).expect("nano");
    let vocabulary = (kind == ModelKind::Drafter).then_some(&target);
    let temporary = tempfile::tempdir().expect("a folder");
    let out = temporary.path().join("model.gguf");
    let options =
        QuantizeOptions { kind, format, lm_head: format, imatrix: None, vocabulary, threads: 3 };
    quantize(&checkpoint, &out, &options, &mut |_| {}).expect("written");
    let (ours, theirs) = (gguf(&out), gguf(&golden(name)));
    let (our_keys, their_keys) = (keys(&ours), keys(&theirs));
    for (key, value) in &their_keys {
        let same = our_keys.get(key) == Some(value) || *key == "general.name";
        assert!(same, "{name}: key {key} is {:?}, expected {value:?}", our_keys.get(key));
    }
    let more: Vec<&str> =
        our_keys.keys().copied().filter(|key| !their_keys.contains_key(key)).collect();
    assert_eq!(more, ours_only, "{name}");
    assert_eq!(ours.tensors.len(), theirs.tensors.len(), "{name}");
    for tensor in &theirs.tensors {
        let found = ours.tensors.iter().find(|found| found.name == tensor.name);
        let found = found.unwrap_or_else(|| panic!("{name}: {} is missing", tensor.name));
        assert_eq!(found.shape, tensor.shape, "{name}: {}", tensor.name);
        assert_eq!(found.encoding, tensor.encoding, "{name}: {}", tensor.name);
        let bytes = &ours.files[0].bytes[found.range.clone()];
        let same = *bytes == theirs.files[0].bytes[tensor.range.clone()];
        assert!(same, "{name}: bytes of {} differ", tensor.name);
    }
}

#[test]
fn text_models_equal_the_golden_files() {
    check("target", ModelKind::Text, Format::Bf16, "target.bf16.gguf", &[]);
    let version = &["general.quantization_version"];
    check("target", ModelKind::Text, Format::Q8_0, "target.q8_0.gguf", version);
}

#[test]
fn drafters_equal_the_golden_files() {
    check("assistant", ModelKind::Drafter, Format::Bf16, "dflash.bf16.gguf", &[]);
    let version = &["general.quantization_version"];
    check("assistant", ModelKind::Drafter, Format::Q8_0, "dflash.q8_0.gguf", version);
}

#[test]
fn projectors_equal_the_golden_files() {
    check("target", ModelKind::Vision, Format::Bf16, "mmproj.bf16.gguf", &[]);
    let version = &["general.quantization_version"];
    check("target", ModelKind::Vision, Format::Q8_0, "mmproj.q8_0.gguf", version);
}
