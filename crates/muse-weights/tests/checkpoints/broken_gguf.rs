//! Broken GGUF containers: each is refused with the file, the location, what was found and
//! what was expected.

use muse_core::quant::Format;
use muse_weights::Error;

use crate::support::*;

/// Breaks a sound file in one way; the error must contain these parts.
pub(crate) type Case = (&'static str, fn(&mut Gguf), &'static [&'static str]);

#[track_caller]
fn check(bytes: Vec<u8>, what: &str, parts: &[&str]) {
    let Err(error) = open_gguf(bytes) else { panic!("{what}: was opened") };
    let message = error.to_string();
    for part in ["model.gguf", "expected"].iter().chain(parts) {
        let advice = matches!(error, Error::Format { .. }) && *part == "expected";
        assert!(advice || message.contains(part), "{what}: no `{part}` in: {message}");
    }
}

pub(crate) fn check_all(file: fn() -> Gguf, cases: &[Case]) {
    for (what, break_it, parts) in cases {
        let mut file = file();
        open_gguf(file.bytes()).unwrap_or_else(|error| panic!("{what}: before: {error}"));
        break_it(&mut file);
        check(file.bytes(), what, parts);
    }
}

/// Puts bytes at a place of the file.
fn patched(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = small_text().bytes();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

#[test]
fn broken_bytes() {
    let sound = small_text().bytes();
    check(Vec::new(), "empty", &["magic", "0 bytes"]);
    check(b"GG".to_vec(), "two bytes", &["magic", "2 bytes"]);
    check(patched(0, b"GGML"), "another magic", &["magic", "`GGML`", "`GGUF`"]);
    check(patched(0, b"\x00\xff\n\""), "binary magic", &["magic", r"\x00\xff\n"]);
    check(patched(4, &1_u32.to_le_bytes()), "version 1", &["version", "1", "2 or 3"]);
    check(patched(4, &9_u32.to_le_bytes()), "version 9", &["version 9"]);
    check(patched(4, &3_u32.to_be_bytes()), "big endian", &["big-endian"]);
    let huge = (1_u64 << 63).to_le_bytes();
    check(patched(8, &huge), "tensors", &["tensor count", "9223372036854775808"]);
    check(patched(16, &huge), "keys", &["key count", "9223372036854775808"]);
    check(patched(24, &huge), "key length", &["name of a key", "9223372036854775808"]);
    check(patched(24, &[0; 8]), "empty key", &["name of a key", "0 bytes"]);
    check(patched(32, b"\xff"), "key bytes", &["`general.architecture`", "nothing"]);
    check(sound[..20].to_vec(), "cut in the counts", &["tensor count", "complete"]);
    check(sound[..200].to_vec(), "cut in the keys", &["count", "complete"]);
    let cut = sound[..sound.len() - 64].to_vec();
    check(cut, "cut in the data", &["`blk.3.ffn_down.weight`", "is the file complete?"]);
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00".to_vec();
    check(pointer, "pointer", &["Git LFS pointer", "git lfs pull"]);
}

#[test]
fn every_cut_is_refused() {
    let sound = small_drafter().bytes();
    for length in 0..sound.len() {
        let error = open_gguf(sound[..length].to_vec()).err();
        assert!(error.is_some(), "the first {length} of {} bytes were opened", sound.len());
    }
}

const CONTAINER: &[Case] = &[
    ("key twice", |f| f.keys.push(f.keys[1].clone()), &["`muse-glimmer.block_count`", "two keys"]),
    (
        "tensor twice",
        |f| f.tensors.push(f.tensors[1].clone()),
        &["`output_norm.weight`", "two tensors"],
    ),
    ("value type", |f| f.set("x", Key::Raw(13, vec![0; 8])), &["x: ", "value type 13", "0 to 12"]),
    (
        "list of unknown",
        |f| f.set("x", Key::Raw(9, [&99_u32.to_le_bytes()[..], &[0; 8]].concat())),
        &["x: ", "value type 99"],
    ),
    (
        "list too long",
        |f| f.set("x", Key::Raw(9, [&4_u32.to_le_bytes()[..], &[0xff; 8]].concat())),
        &["x: ", "a count of 18446744073709551615"],
    ),
    (
        "texts too many",
        |f| f.set("x", Key::Raw(9, [&8_u32.to_le_bytes()[..], &[0x7f; 8]].concat())),
        &["x: ", "a count of"],
    ),
    (
        "deep lists",
        |f| {
            let level = [&9_u32.to_le_bytes()[..], &1_u64.to_le_bytes()].concat();
            f.set("x", Key::Raw(9, level.repeat(1000)));
        },
        &["x: ", "nested deeper than 4"],
    ),
    (
        "architecture not UTF-8",
        |f| f.set("general.architecture", Key::bytes(b"muse-glimmer\xff")),
        &["`general.architecture`", "the string `muse-glimmer\u{fffd}`", "UTF-8"],
    ),
    (
        "alignment 3",
        |f| f.set("general.alignment", Key::U32(3)),
        &["`general.alignment`", "3", "power of two"],
    ),
    ("alignment 0", |f| f.set("general.alignment", Key::U32(0)), &["found 0", "power of two"]),
    (
        "alignment as a string",
        |f| f.set("general.alignment", "32".into()),
        &["the string `32`", "power of two"],
    ),
    ("no dimensions", |f| f.tensors[0].dims.clear(), &["`token_embd.weight`", "0 dimensions"]),
    ("five dimensions", |f| f.tensors[0].dims = vec![1; 5], &["5 dimensions", "1 to 4"]),
    ("empty dimension", |f| f.tensors[0].dims = vec![32, 0], &["a dimension of 0"]),
    ("dimensions overflow", |f| f.tensors[0].dims = vec![1 << 32; 3], &["fits in memory"]),
    ("bytes overflow", |f| f.tensors[0].dims = vec![1 << 61, 2], &["fit in memory"]),
    (
        "offset unaligned",
        |f| f.tensors[1].shift = 4,
        &["`output_norm.weight`", "the alignment, 32"],
    ),
    (
        "offset huge",
        |f| f.tensor("blk.3.ffn_down.weight").shift = 1 << 62,
        &["at offset 46116860184", "a range inside"],
    ),
    (
        "overlap",
        |f| f.tensors[1].shift = -32,
        &["`output_norm.weight`", "an overlap with token_embd.weight"],
    ),
    (
        "gap",
        |f| f.tensors[0].bytes.extend([0; 64]),
        &["`output_norm.weight`", "a gap of 64 bytes after token_embd.weight"],
    ),
    (
        "rows in parts of blocks",
        |f| {
            f.tensors[0].kind = 12;
        },
        &["`token_embd.weight`", "rows of 32 values as Q4_K", "multiple of 256"],
    ),
    (
        "shorter than its type",
        |f| f.tensor("blk.3.ffn_down.weight").bytes.truncate(100),
        &["`blk.3.ffn_down.weight`", "a range inside"],
    ),
];

#[test]
fn broken_containers() {
    check_all(small_text, CONTAINER);
}

const FORMATS: &[Case] = &[
    ("ik type", |f| f.tensors[0].kind = 144, &["`token_embd.weight`", "IQ4_KS", "ik_llama.cpp"]),
    ("unknown ik type", |f| f.tensors[0].kind = 160, &["ggml type 160", "ik_llama.cpp"]),
    ("withdrawn type", |f| f.tensors[0].kind = 4, &["ggml type 4", "convert the model again"]),
    (
        "integers",
        |f| {
            f.tensors[0].kind = 26;
        },
        &["`token_embd.weight`", "I32"],
    ),
];

#[test]
fn formats_of_others() {
    check_all(small_text, FORMATS);
    let mut file = small_text();
    file.tensors[0].kind = 144;
    let error = open_gguf(file.bytes()).expect_err("a foreign format");
    assert!(matches!(muse_core::Error::from(error), muse_core::Error::Unsupported(_)));
}

#[test]
fn names_in_messages_are_tame() {
    let mut file = small_text();
    file.tensors.push(Tensor::f32(&format!("a\u{1b}[31m{}", "x".repeat(9000)), &[32]));
    let message = open_gguf(file.bytes()).expect_err("a stray tensor").to_string();
    assert!(message.len() < 500 && !message.contains('\u{1b}'), "{message}");
}

#[test]
fn a_file_that_cannot_run_is_still_described() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("foreign.gguf");
    let mut file = small_text();
    file.tensor("blk.3.ffn_down.weight").kind = 144;
    std::fs::write(&path, file.bytes()).expect("written");
    let report = muse_weights::inspect(&path).expect("described");
    assert!(matches!(report.problem, Some(Error::Format { .. })));
    let text = report.to_string();
    for part in ["IQ4_KS", Format::F32.name(), "cannot run", "4 layers (1 full"] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
}
