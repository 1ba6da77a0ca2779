//! config.json beside sound weights is the input. Inputs grow from the sound settings.
#![no_main]

#[path = "../checkpoint.rs"]
mod checkpoint;

use std::sync::LazyLock;

use checkpoint::support::{safetensors, small_target};
use checkpoint::{plant, read_all};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

/// The sound settings and the weights they describe.
static SOUND: LazyLock<(Vec<u8>, Vec<u8>)> = LazyLock::new(|| {
    let folder = small_target();
    (folder.config.to_string().into(), safetensors(&folder.tensors))
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, _seed: u32| {
    let size = plant(data, size, &SOUND.0);
    libfuzzer_sys::fuzzer_mutate(data, size, max_size)
});

fuzz_target!(|config: &[u8]| {
    read_all([
        ("config.json", config.to_vec().into()),
        ("generation_config.json", config.to_vec().into()),
        ("model.safetensors", SOUND.1[..].into()),
    ]);
});
