//! Reads Muse-Glimmer checkpoints: safetensors folders and GGUF files, memory-mapped.
//!
//! Files are untrusted: everything in them is checked before use, and what a checkpoint's tensors
//! are is decided when it is opened. Names and layout are those of
//! [`muse_core::contract::WeightSource`], whatever the file was.
#![deny(unsafe_code)]

mod checkpoint;
mod error;
mod folder;
mod hf;
mod layout;
mod map;
mod raw;
mod safetensors;
mod settings;
mod tensor;

pub use checkpoint::Checkpoint;
pub use error::Error;
pub use map::Bytes;
