//! Reads Muse-Glimmer checkpoints: safetensors folders and GGUF files, memory-mapped.
//!
//! Files are untrusted: everything in them is checked before use, and what a checkpoint's tensors
//! are is decided when it is opened. Names and layout are those of
//! [`muse_core::contract::WeightSource`], whatever the file was.
//!
//! ```
//! use muse_core::contract::WeightSource;
//! use muse_weights::Checkpoint;
//!
//! let folder = muse_testkit::nano_dir().join("target");
//! let checkpoint = Checkpoint::open(&folder)?;
//! let text = checkpoint.spec().text.as_ref().expect("the folder of a text model");
//! let queries = checkpoint.weight("blk.0.attn_q.weight")?;
//! assert_eq!((queries.rows, queries.cols), (text.heads * text.head_dim, text.hidden));
//! println!("{}", muse_weights::inspect(&folder)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

mod checkpoint;
mod error;
mod files;
mod folder;
mod gguf;
mod hf;
mod layout;
mod map;
mod raw;
mod report;
mod safetensors;
mod settings;
mod tensor;
mod write;

pub use checkpoint::Checkpoint;
pub use error::Error;
pub use map::Bytes;
pub use report::{FormatShare, Report, TokenizerFacts, inspect};
pub use write::{
    GgufKeys, GgufTensor, GgufValue, GgufWriter, Imatrix, ModelKind, NewFile, Progress, Recipe,
    Written, quantize,
};
