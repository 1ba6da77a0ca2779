//! Fakes, contract suites and the golden reader, for tests.
#![forbid(unsafe_code)]

mod close;
mod cpu_timer;
pub mod fake;
mod golden;
mod isa;
pub mod suite;

pub use close::{assert_close, correlation, max_abs_diff};
pub use cpu_timer::CpuTimer;
pub use golden::{Golden, Tensor, golden_dir, nano_dir};
pub use isa::{assert_expected_isa, report_skipped};
