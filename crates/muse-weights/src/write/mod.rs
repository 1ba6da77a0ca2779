//! Writes GGUF files: the container, the keys of a model, and a checkpoint in another format.

mod describe;
mod file;
mod imatrix;
mod keys;
mod new_file;
mod plan;
mod quantize;
mod rows;
#[cfg(test)]
mod tests;
mod vocabulary;

pub use file::{GgufTensor, GgufWriter};
pub use imatrix::Imatrix;
pub use keys::{GgufKeys, GgufValue};
pub use new_file::{NewFile, abandoned_files, remove_incomplete_files};
pub use plan::ModelKind;
pub use quantize::{QuantizeOptions, QuantizeProgress, QuantizedTensor, quantize};
