//! A compiled program, which runs with the arguments of any plan of its spec.

use std::borrow::Cow;

use muse_core::Result;

use super::workload::{Program, Workload};
use crate::device::{Device, DeviceLock};
use crate::kernel_cost::CostCounter;
use crate::plan::Plan;

/// A workload and the ids of its kernels.
pub(super) struct Compiled {
    workload: Workload,
    kernels: Vec<u32>,
}

impl Compiled {
    /// The program of a plan, with the arguments of that plan. The host library compiles the
    /// kernels when the program runs for the first time.
    pub(super) fn new(device: &Device, plan: &Plan, counter: Option<&CostCounter>) -> Result<Self> {
        let program = Program::new(device)?;
        let ranges = plan.spec.cores.ranges();
        let unpacked = plan.spec.buffers.iter().filter(|buffer| buffer.unpack_to_f32);
        let unpack_to_f32 = unpacked.fold(0, |bits, buffer| bits | 1 << buffer.index);
        for buffer in &plan.spec.buffers {
            program.circular_buffer(&ranges, buffer)?;
        }
        for number in 0..plan.spec.semaphores {
            assert_eq!(program.semaphore(&ranges)?, number, "semaphore ids count from 0");
        }
        let mut kernels = Vec::with_capacity(plan.spec.kernels.len());
        for (kernel, (common, per_core)) in plan.spec.kernels.iter().zip(plan.words()) {
            let source = counter.map(|counter| counter.source(kernel));
            let source = source.unwrap_or(Cow::Borrowed(kernel.source));
            let id = program.kernel(&ranges, kernel, &source, unpack_to_f32)?;
            if !common.is_empty() {
                program.common_args(id, &common)?;
            }
            for (core, words) in per_core {
                program.runtime_args(id, core, &words)?;
            }
            kernels.push(id);
        }
        Ok(Self { workload: program.finish()?, kernels })
    }

    /// Runs it with the arguments it was made with.
    pub(super) fn run(&self, lock: &DeviceLock<'_>, wait: bool) -> Result<()> {
        self.workload.run(lock, wait)
    }

    /// Runs it with the arguments of a plan of the same spec.
    pub(super) fn run_plan(&self, lock: &DeviceLock<'_>, plan: &Plan, wait: bool) -> Result<()> {
        for (id, (common, per_core)) in self.kernels.iter().zip(plan.words()) {
            if !common.is_empty() {
                self.workload.common_args(lock, *id, &common)?;
            }
            for (core, words) in per_core {
                self.workload.runtime_args(lock, *id, core, &words)?;
            }
        }
        self.workload.run(lock, wait)
    }
}
