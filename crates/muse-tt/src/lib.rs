//! Tenstorrent devices: safe handles over the shim of `muse-tt-sys`, programs as plain data, and
//! the operations of the model as kernels of our own. The devices are tested against a table of
//! functions that is none, the kernels by `cargo xtask parity tt`.

mod backend;
mod buffer;
mod cache;
mod cores;
mod cost;
mod descendants;
mod device;
mod error;
#[cfg(test)]
mod fake;
mod matrix;
pub mod op;
mod pages;
mod program;
mod segments;
mod smoke;
mod trace;
mod watch;
mod weight;

pub use backend::{Activations, Loaded, Tt, TtOptions};
pub use buffer::Buffer;
pub use cache::{Formats, Progress, WeightCache};
pub use cores::{Core, Cores};
pub use cost::Cost;
pub use device::{Device, DeviceOptions, open_shim};
pub use matrix::{Ids, Matrix, Table};
pub use pages::{KvPages, positions, slots};
pub use program::{Accessor, Arg, CircularBuffer, Kernel, Plan, Processor, Programs, Shape};
pub use segments::Segments;
pub use smoke::smoke;
pub use trace::Trace;
pub use weight::{Layout, Weight};
