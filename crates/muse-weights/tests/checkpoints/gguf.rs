//! Compares GGUF files of the tree with the HuggingFace folders they were made from.

use std::path::PathBuf;

use muse_core::contract::{TokenKind, Vocabulary, WeightSource};
use muse_core::quant::Format;
use muse_testkit::{assert_close, golden_dir, nano_dir};
use muse_weights::Checkpoint;

fn open(path: PathBuf) -> Checkpoint {
    Checkpoint::open(&path).unwrap_or_else(|error| panic!("{error}"))
}

fn gguf(name: &str) -> Checkpoint {
    open(golden_dir().join("nano/gguf").join(name))
}

fn names(checkpoint: &Checkpoint, keep: impl Fn(&str) -> bool) -> Vec<&str> {
    let names = checkpoint.tensors().iter().map(|tensor| tensor.name.as_str());
    let mut names: Vec<&str> = names.filter(|name| keep(name)).collect();
    names.sort_unstable();
    names
}

fn is_text(name: &str) -> bool {
    !name.starts_with("v.") && !name.starts_with("mm.")
}

#[test]
fn the_text_model_is_the_same_bit_for_bit() {
    let (ours, theirs) = (open(nano_dir().join("target")), gguf("target.bf16.gguf"));
    assert_eq!(ours.spec().text, theirs.spec().text);
    let names = names(&ours, is_text);
    assert_eq!(names.len(), theirs.tensors().len());
    for name in names {
        let (a, b) = (ours.weight(name).expect("ours"), theirs.weight(name).expect("theirs"));
        assert_eq!((a.rows, a.cols), (b.rows, b.cols), "{name}");
        assert_eq!(a.to_f32(), b.to_f32(), "{name}");
        if a.rows > 1 {
            assert_eq!((a.format, &a.bytes), (b.format, &b.bytes), "{name}");
        }
    }
}

#[test]
fn the_drafter_is_the_same_bit_for_bit() {
    let (ours, theirs) = (open(nano_dir().join("assistant")), gguf("dflash.bf16.gguf"));
    assert_eq!(ours.spec(), theirs.spec());
    let names = names(&ours, |_| true);
    assert_eq!(names.len(), theirs.tensors().len());
    for name in names {
        let (a, b) = (ours.weight(name).expect("ours"), theirs.weight(name).expect("theirs"));
        assert_eq!(a.to_f32(), b.to_f32(), "{name}");
    }
}

#[test]
fn the_vision_tower_is_the_same_but_for_the_summed_patch_kernel() {
    let (ours, theirs) = (open(nano_dir().join("target")), gguf("mmproj.bf16.gguf"));
    assert_eq!(ours.spec().vision, theirs.spec().vision);
    let names = names(&ours, |name| !is_text(name));
    assert_eq!(names.len(), theirs.tensors().len());
    for name in names {
        let (a, b) = (ours.weight(name).expect("ours"), theirs.weight(name).expect("theirs"));
        if name == "v.patch_embd.weight" {
            assert_eq!((a.cols, b.cols), (2 * 588, 588));
            let halves = a.to_f32();
            let halves = halves.chunks_exact(2 * 588);
            let sum =
                |row: &[f32]| -> Vec<f32> { (0..588).map(|i| row[i] + row[i + 588]).collect() };
            assert_close(name, &b.to_f32(), &halves.flat_map(sum).collect::<Vec<_>>(), 1e-7);
        } else {
            assert_eq!(a.to_f32(), b.to_f32(), "{name}");
        }
    }
}

/// A Q8_0 value is off by at most half a step of `max |x| / 127`, and by 127 times what the scale
/// loses to half precision, a part in 2048: 0.562 steps.
#[test]
fn quantized_files_are_close_to_the_originals() {
    for (ours, theirs) in [
        ("target.bf16.gguf", "target.q8_0.gguf"),
        ("dflash.bf16.gguf", "dflash.q8_0.gguf"),
        ("mmproj.bf16.gguf", "mmproj.q8_0.gguf"),
    ] {
        let (ours, theirs) = (gguf(ours), gguf(theirs));
        assert_eq!(ours.spec(), theirs.spec());
        let mut quantized = 0;
        for info in theirs.tensors() {
            let a = ours.weight(&info.name).expect("ours").to_f32();
            let b = theirs.weight(&info.name).expect("theirs");
            quantized += usize::from(b.format == Format::Q8_0);
            let largest = a.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
            let tolerance = if b.format == Format::Q8_0 { largest / 127.0 * 0.563 } else { 0.0 };
            assert_close(&info.name, &b.to_f32(), &a, tolerance);
        }
        assert!(quantized > 10, "{quantized} tensors as Q8_0");
    }
}

#[test]
fn vocabulary_and_stop_tokens() {
    let target = gguf("target.bf16.gguf");
    assert_eq!(target.generation().stop, [897, 904]);
    assert_eq!(target.generation().temperature, None);
    let Some(Vocabulary::Bpe { tokens, kinds, merges, pre, bos }) =
        target.vocabulary().expect("readable")
    else {
        panic!("byte-level BPE");
    };
    assert_eq!((tokens.len(), kinds.len(), bos), (1024, 1024, Some(896)));
    assert_eq!((tokens[896].as_str(), tokens[904].as_str()), ("<|begin_of_text|>", "<|eot|>"));
    assert_eq!((kinds[0], kinds[904]), (TokenKind::Normal, TokenKind::Control));
    assert_eq!(pre, "llama4");
    let file = std::fs::read(nano_dir().join("target/tokenizer.json")).expect("tokenizer.json");
    let file: serde_json::Value = serde_json::from_slice(&file).expect("JSON");
    assert_eq!(file["model"]["merges"].as_array().expect("a list").len(), merges.len());
}
