//! Contracts, quantization formats as data, the Muse-Glimmer model and the engine that runs it.
//!
//! Reading [`contract`] is reading the architecture: one file per trait, each implemented by a
//! sibling crate that knows nothing of the others. This crate is safe Rust without I/O; a thread
//! and a clock appear in `engine/thread.rs` alone.
#![forbid(unsafe_code)]

pub mod contract;
pub mod engine;
mod error;
pub mod hash;
pub mod model;
pub mod quant;
pub mod sampler;

pub use error::{Error, Result};
