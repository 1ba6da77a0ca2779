//! The header of a safetensors file, with its length, is the input; zeros stand for its data.
//! Inputs grow from the header of a small sound drafter.
#![no_main]

#[path = "../checkpoint.rs"]
mod checkpoint;

use std::sync::LazyLock;

use checkpoint::support::{safetensors, small_assistant};
use checkpoint::{plant, read_all};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

struct Sound {
    config: Vec<u8>,
    header: Vec<u8>,
    /// Bytes of data behind the header.
    data: usize,
}

static SOUND: LazyLock<Sound> = LazyLock::new(|| {
    let folder = small_assistant();
    let data = folder.tensors.iter().map(|tensor| tensor.bytes.len()).sum();
    let mut header = safetensors(&folder.tensors);
    header.truncate(header.len() - data);
    Sound { config: folder.config.to_string().into(), header, data }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, _seed: u32| {
    let size = plant(data, size, &SOUND.header);
    libfuzzer_sys::fuzzer_mutate(data, size, max_size)
});

fuzz_target!(|header: &[u8]| {
    let mut file = header.to_vec();
    file.resize(header.len() + SOUND.data, 0);
    read_all([("config.json", SOUND.config[..].into()), ("model.safetensors", file.into())]);
});
