//! The backend suite on the CPU.

use muse_cpu::{Cpu, CpuOptions};

muse_testkit::suite::backend!(Cpu::new(CpuOptions { threads: Some(1) }).unwrap());
