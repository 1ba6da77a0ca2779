//! The CPU backend.

use std::time::Duration;

use muse_core::Result;
use muse_cpu::{Cpu, CpuOptions, Peaks};

use super::BackendFactory;
use crate::runtime::{LoadOptions, Roofline};

pub(super) struct CpuFactory;

impl BackendFactory for CpuFactory {
    type Device = Cpu;

    fn name(&self) -> &'static str {
        "cpu"
    }

    /// Every option means something here.
    fn check(&self, _: &LoadOptions) -> Result<()> {
        Ok(())
    }

    fn open(&self, options: &LoadOptions) -> Result<Cpu> {
        let cpu = Cpu::new(CpuOptions { threads: options.threads })?;
        Ok(if options.exact { cpu.exact() } else { cpu })
    }

    fn measure_roofline(&self, options: &LoadOptions, time: Duration) -> Result<Roofline> {
        let all = || std::thread::available_parallelism().map_or(1, usize::from);
        let peaks = Peaks::measure(options.threads.unwrap_or_else(all), time)?;
        Ok(Roofline {
            read: peaks.read,
            int8: peaks.int8.unwrap_or(peaks.f32),
            bf16: peaks.bf16.unwrap_or(peaks.f32),
            f32: peaks.f32,
        })
    }
}
