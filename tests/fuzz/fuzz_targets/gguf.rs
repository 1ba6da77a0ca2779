//! The header of a GGUF file is the input; zeros stand for its data. Inputs grow from the headers
//! of small sound models.
#![no_main]

#[path = "../checkpoint.rs"]
mod checkpoint;

use std::sync::LazyLock;

use checkpoint::support::{small_drafter, small_projector, small_text};
use checkpoint::{plant, read_all};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

/// Headers of the sound models, and the bytes of data behind each.
static SOUND: LazyLock<Vec<(Vec<u8>, usize)>> = LazyLock::new(|| {
    [small_text(), small_drafter(), small_projector()]
        .map(|file| {
            let header = file.header();
            let aligned = header.len().next_multiple_of(file.alignment);
            let data = file.bytes().len() - aligned;
            (header, data)
        })
        .into()
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let size = plant(data, size, &SOUND[seed as usize % SOUND.len()].0);
    libfuzzer_sys::fuzzer_mutate(data, size, max_size)
});

fuzz_target!(|header: &[u8]| {
    for (_, data) in &*SOUND {
        let mut file = header.to_vec();
        file.resize(header.len().next_multiple_of(32) + data, 0);
        read_all([("model.gguf", file.into())]);
    }
});
