//! Contracts, quantization formats as data, the Muse-Glimmer model and the engine that runs it.
//!
//! Reading [`contract`] is reading the architecture: one file per trait, each implemented by a
//! sibling crate that knows nothing of the others. A thread and a clock appear in
//! `engine/thread.rs` only.
//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod contract;
pub mod engine;
mod error;
pub mod hash;
pub mod model;
pub mod quant;
pub mod sampler;

pub use error::{Error, Result};
