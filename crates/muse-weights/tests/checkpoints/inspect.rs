//! Inspects the checkpoints of the tree.

use muse_testkit::{golden_dir, nano_dir};
use muse_weights::inspect;

#[track_caller]
fn check(path: std::path::PathBuf, expected: &[&str]) {
    let report = inspect(&path).unwrap_or_else(|error| panic!("{error}"));
    assert!(report.problem.is_none(), "{report}");
    let text = report.to_string();
    for part in expected {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
}

#[test]
fn folders_and_files_are_described() {
    check(
        nano_dir().join("target"),
        &[
            "HuggingFace folder, 1 safetensors file",
            "architecture  muse_glimmer\n",
            "8 layers (2 full, 6 sliding of 64), hidden 256, feed-forward 512, heads 4 / 2 of 64",
            "vision        4 layers (1 full)",
            "BF16 ",
            "1024 tokens",
            "bos 896, eos 897, eot 904",
            "generation    stop [897, 904], temperature 0",
            "note          no chat template",
        ],
    );
    check(golden_dir().join("tiny/target"), &["note          no tokenizer"]);
    check(
        golden_dir().join("nano/gguf/target.q8_0.gguf"),
        &[
            "GGUF version 3, 1 file",
            "architecture  muse-glimmer\n",
            "Q8_0 ",
            "F32 ",
            "gpt2, pre-tokenizer llama4, 1024 tokens",
            "note          no vision tower",
        ],
    );
    check(
        golden_dir().join("nano/gguf/dflash.bf16.gguf"),
        &[
            "drafter       2 layers, hidden 256",
            "block 16, reach 64, mask token 1015, target layers [1, 3, 6]",
        ],
    );
    check(golden_dir().join("nano/gguf/mmproj.bf16.gguf"), &["projector 256 to 256"]);
}

#[test]
fn the_sums_equal_the_size_of_the_file() {
    let report = inspect(&nano_dir().join("assistant")).expect("readable");
    let file = std::fs::metadata(nano_dir().join("assistant/model.safetensors")).expect("a file");
    assert!(report.bytes() < file.len() && report.bytes() > file.len() - 10_000);
    assert_eq!(report.parameters() * 2, report.bytes());
}
