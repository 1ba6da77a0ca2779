//! Installs Tenstorrent's packages, and compares every kernel with the CPU backend in one of
//! several lanes: simulators or a card.
#![forbid(unsafe_code)]

pub mod case_filter;
pub mod cases;
pub mod lane;
pub mod process;
pub mod report;
pub mod setup;

/// Exit status of the programs when the machine lacks what they need, so that nothing was tested.
pub const SKIPPED: u8 = 3;
