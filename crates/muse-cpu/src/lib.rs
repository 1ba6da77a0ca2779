//! The CPU backend: SIMD kernels, each with a scalar reference.
//!
#![doc = include_str!("../README.md")]

mod aligned;
mod attention;
mod backend;
mod buf;
pub mod kernels;
mod kv;
mod layout;
mod linear;
mod memory;
mod peaks;
mod pool;
mod quant;
mod range_attention;
mod rope_frequencies;
mod split;
mod vision;

pub use backend::{Cpu, CpuOptions};
pub use buf::{Buf, Weight};
pub use kernels::Isa;
pub use kv::Kv;
pub use layout::Layout;
pub use peaks::Peaks;
