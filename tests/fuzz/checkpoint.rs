//! What the targets over checkpoints share: sound files to grow from, and reading all of one.

#[path = "../../crates/muse-weights/tests/checkpoints/support/mod.rs"]
pub mod support;

use muse_core::contract::WeightSource;
use muse_weights::{Bytes, Checkpoint};

/// Starts from a sound input instead of an empty one, when there is room for it.
pub fn plant(data: &mut [u8], size: usize, sound: &[u8]) -> usize {
    if size > 1 || sound.len() > data.len() {
        return size;
    }
    data[..sound.len()].copy_from_slice(sound);
    sound.len()
}

/// Opens files and reads everything they promise.
pub fn read_all<const N: usize>(files: [(&str, Bytes); N]) {
    match Checkpoint::from_files(files.map(|(name, bytes)| (name.to_owned(), bytes))) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(checkpoint) => {
            let _ = checkpoint.vocabulary();
            for tensor in checkpoint.tensors() {
                let view = checkpoint.weight(&tensor.name).expect("a tensor that was promised");
                assert_eq!(view.bytes.len(), view.format.bytes_for(view.rows * view.cols));
            }
        }
    }
}
