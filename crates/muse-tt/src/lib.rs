//! The Tenstorrent backend: safe handles over the shim of `muse-tt-sys`, programs as plain data, and
//! the operations of the model as kernels of our own. Unit tests use a fake shim vtable.
#![doc = include_str!("../README.md")]

mod backend;
mod buffer;
mod cache;
mod cores;
mod descendants;
mod device;
mod error;
#[cfg(test)]
mod fake;
mod kernel_cost;
mod kv_cache;
mod matrix;
pub mod op;
mod open;
mod plan;
mod program;
mod segments;
mod smoke_test;
mod watchdog;
mod weight;

pub use backend::{Activations, LoadedWeight, Tt, TtOptions};
pub use buffer::Buffer;
pub use cache::{ChooseFormat, Progress, WeightCache};
pub use cores::{Core, Cores};
pub use device::{Device, DeviceOptions};
pub use kernel_cost::KernelCost;
pub use kv_cache::{KvCache, positions, slot_mapping};
pub use matrix::{EmbeddingTable, IndexBuffer, Matrix};
pub use open::open_shim;
pub use plan::{Accessor, Arg, CircularBuffer, Kernel, Plan, Processor, ProgramSpec};
pub use program::{Programs, Trace};
pub use segments::Segments;
pub use smoke_test::smoke_test;
pub use weight::{Weight, WeightLayout};
