//! Tenstorrent's parts: installing them, the lanes that kernels run in, and the comparison of
//! every kernel with the CPU.
#![forbid(unsafe_code)]

pub mod cases;
pub mod choice;
pub mod lane;
pub mod process;
pub mod report;
pub mod setup;

/// What the programs end with when the machine lacks what they need: nothing was tried.
pub const SKIPPED: u8 = 3;
