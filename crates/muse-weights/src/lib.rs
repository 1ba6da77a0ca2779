//! Reads and writes Muse-Glimmer checkpoints: safetensors folders and GGUF files.
//!
#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod checkpoint;
mod error;
mod files;
mod folder;
mod gguf;
mod hf;
mod layout;
mod map;
mod open;
mod raw;
mod report;
mod safetensors;
mod settings;
mod tensor;
mod write;

pub use checkpoint::Checkpoint;
pub use error::Error;
pub use map::Bytes;
pub use open::{open_regular_file, read_text_file};
pub use report::{FormatShare, Report, TokenizerSummary, inspect};
pub use write::{
    GgufKeys, GgufTensor, GgufValue, GgufWriter, Imatrix, ModelKind, NewFile, QuantizeOptions,
    QuantizeProgress, QuantizedTensor, abandoned_files, quantize, remove_incomplete_files,
};
