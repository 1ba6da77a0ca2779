//! Writers of small checkpoints, sound ones and broken ones. Independent of the crate under test.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part")]

mod folder;
mod gguf;

pub(crate) use folder::{Folder, HfTensor, safetensors, small_assistant, small_target};
pub(crate) use gguf::{Gguf, Key, Tensor, small_drafter, small_projector, small_text};

use muse_weights::{Checkpoint, Error};

/// Opens files in memory.
pub(crate) fn open(files: Vec<(String, Vec<u8>)>) -> Result<Checkpoint, Error> {
    Checkpoint::from_files(files.into_iter().map(|(name, bytes)| (name, bytes.into())))
}

/// Opens a GGUF file in memory.
pub(crate) fn open_gguf(bytes: Vec<u8>) -> Result<Checkpoint, Error> {
    open(vec![("model.gguf".to_owned(), bytes)])
}

/// Bytes of `count` values that depend on the name and the position.
pub(crate) fn f32_bytes(name: &str, count: usize) -> Vec<u8> {
    let seed = name.bytes().fold(7_u32, |seed, byte| seed.wrapping_mul(31) + u32::from(byte));
    let value = |i: u32| (seed.wrapping_add(i).wrapping_mul(2_654_435_761) >> 8) as f32 / 1e7;
    (0..count as u32).flat_map(|i| value(i).to_le_bytes()).collect()
}
