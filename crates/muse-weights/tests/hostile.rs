//! Randomly damaged files: opening them never panics and never takes memory out of proportion.

#[path = "checkpoints/support/mod.rs"]
mod support;

use muse_core::contract::WeightSource;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use support::*;

/// One change to a file.
#[derive(Clone, Debug)]
enum Damage {
    /// A byte becomes another.
    Byte(prop::sample::Index, u8),
    /// Eight bytes become a number that is likely to overflow.
    Word(prop::sample::Index, u64),
    /// The rest is cut off.
    Cut(prop::sample::Index),
    /// Bytes are taken out.
    Remove(prop::sample::Index, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<prop::sample::Index>;
    let words = prop::sample::select(vec![
        0,
        1,
        u64::MAX,
        1 << 63,
        (1 << 63) - 1,
        1 << 40,
        u64::from(u32::MAX),
        0x0909_0909_0909_0909,
    ]);
    prop_oneof![
        4 => (at(), any::<u8>()).prop_map(|(at, byte)| Damage::Byte(at, byte)),
        2 => (at(), words).prop_map(|(at, word)| Damage::Word(at, word)),
        1 => at().prop_map(Damage::Cut),
        1 => (at(), 1..64_usize).prop_map(|(at, count)| Damage::Remove(at, count)),
    ]
}

/// Applies changes within the first `within` bytes, where the settings are.
fn apply(bytes: &mut Vec<u8>, within: usize, damages: &[Damage]) {
    for damage in damages {
        let within = within.min(bytes.len());
        if within == 0 {
            return;
        }
        match damage {
            Damage::Byte(at, byte) => bytes[at.index(within)] = *byte,
            Damage::Word(at, word) => {
                let at = at.index(within);
                let count = 8.min(bytes.len() - at);
                bytes[at..at + count].copy_from_slice(&word.to_le_bytes()[..count]);
            }
            Damage::Cut(at) => bytes.truncate(at.index(within)),
            Damage::Remove(at, count) => {
                let at = at.index(within);
                bytes.drain(at..(at + count).min(bytes.len()));
            }
        }
    }
}

/// Opens the files and reads everything in them. Returns whether they were accepted.
fn exercise(files: Vec<(String, Vec<u8>)>) -> bool {
    let Ok(checkpoint) = open(files) else { return false };
    let _ = checkpoint.vocabulary();
    for tensor in checkpoint.tensors() {
        let view = checkpoint.weight(&tensor.name).expect("a listed tensor");
        assert_eq!(view.bytes.len(), view.format.bytes_for(view.rows * view.cols));
    }
    true
}

/// Peak virtual memory of this process in bytes, where the system reports it.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmPeak:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The only test in this process, so that no other memory is counted.
#[test]
fn damaged_files_neither_panic_nor_grow() {
    let mut runner = TestRunner::new_with_rng(
        ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() },
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let originals = [
        vec![("model.gguf".to_owned(), small_text().bytes())],
        vec![("model.gguf".to_owned(), small_drafter().bytes())],
        vec![("model.gguf".to_owned(), small_projector().bytes())],
        small_assistant().files(),
        small_assistant().sharded(),
    ];
    assert!(originals.iter().all(|files| exercise(files.clone())), "the originals are sound");
    let before = peak();
    let opened = std::cell::Cell::new(0);
    let which = (0..originals.len(), any::<prop::sample::Index>(), vec(damage(), 1..4));
    runner
        .run(&which, |(original, file, damages)| {
            let mut files = originals[original].clone();
            let count = files.len();
            let bytes = &mut files[file.index(count)].1;
            // Headers of these files are below 4 KiB; damage to data only changes numbers.
            apply(bytes, 4096, &damages);
            opened.set(opened.get() + usize::from(exercise(files)));
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(opened.get() < 3_000, "nothing was refused");
    match (before, peak()) {
        (Some(before), Some(after)) => {
            let grown = after - before;
            assert!(grown < 64 << 20, "{grown} bytes more for files of less than 200 KiB");
        }
        _ => eprintln!("skipped: this system does not report the memory of a process"),
    }
}
