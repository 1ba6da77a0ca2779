//! Programs that are compiled already, and the plans that they are compiled from.

mod plan;
mod workload;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use muse_core::Result;

use crate::cost::{Cost, Counter};
use crate::device::{Device, Turn};
use crate::trace::{Recording, Trace};
pub use plan::{Accessor, Arg, CircularBuffer, Kernel, Plan, Processor, Shape};
use workload::{Program, Workload};

/// Programs of one device that are compiled.
pub struct Programs {
    device: Device,
    compiled: HashMap<Shape, Arc<Compiled>>,
    counter: Option<Counter>,
}

/// A workload and the numbers of its kernels.
pub(crate) struct Compiled {
    workload: Workload,
    kernels: Vec<u32>,
}

impl Programs {
    /// None yet.
    pub fn new(device: &Device) -> Self {
        Self { device: device.clone(), compiled: HashMap::new(), counter: None }
    }

    /// None yet, and those to come count what they cost.
    ///
    /// # Errors
    /// [`muse_core::Error::Exhausted`] when cores have no room for counts.
    pub fn counting(device: &Device) -> Result<Self> {
        let counter = Some(Counter::new(device)?);
        Ok(Self { counter, ..Self::new(device) })
    }

    /// What all runs cost; nothing when they do not count.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn cost(&self) -> Result<Option<Cost>> {
        self.counter.as_ref().map(Counter::cost).transpose()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.compiled.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.compiled.is_empty()
    }

    /// The device they are for.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Starts a plan, compiling it when its shape is new; returns when it has ended if `wait` is
    /// set.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when it does not compile or the device fails.
    pub fn run(&mut self, plan: &Plan, wait: bool) -> Result<()> {
        if let Some(compiled) = self.compiled.get(&plan.shape) {
            return compiled.start(&self.device.turn(), plan, wait);
        }
        let compiled = Compiled::new(&self.device, plan, self.counter.as_ref())?;
        // One that failed is freed behind this, which needs a turn of its own.
        let ran = compiled.workload.run(&self.device.turn(), wait);
        ran?;
        self.compiled.insert(plan.shape.clone(), Arc::new(compiled));
        Ok(())
    }

    /// Runs plans to their end, one after the other, then records them, to be run again with what
    /// their buffers hold by then. Nobody else starts anything on the device meanwhile, and nothing
    /// is compiled while it records.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails or cannot record.
    pub fn record(&mut self, plans: &[Plan]) -> Result<Trace> {
        plans.iter().try_for_each(|plan| self.run(plan, true))?;
        let recording = Recording::begin(&self.device)?;
        let mut programs = Vec::with_capacity(plans.len());
        for plan in plans {
            let compiled = &self.compiled[&plan.shape];
            compiled.start(recording.turn(), plan, false)?;
            programs.push(compiled.clone());
        }
        recording.end(programs)
    }
}

impl Compiled {
    fn new(device: &Device, plan: &Plan, counter: Option<&Counter>) -> Result<Self> {
        let program = Program::new(device)?;
        let ranges = plan.shape.cores.ranges();
        let whole = plan.shape.buffers.iter().filter(|buffer| buffer.whole);
        let whole = whole.fold(0, |bits, buffer| bits | 1 << buffer.index);
        for buffer in &plan.shape.buffers {
            program.circular_buffer(&ranges, buffer)?;
        }
        for number in 0..plan.shape.semaphores {
            assert_eq!(program.semaphore(&ranges)?, number, "semaphores are numbered in order");
        }
        let mut kernels = Vec::with_capacity(plan.shape.kernels.len());
        for (kernel, (shared, own)) in plan.shape.kernels.iter().zip(plan.words()) {
            let source = counter.map(|counter| counter.source(kernel));
            let source = source.unwrap_or(Cow::Borrowed(kernel.source));
            let id = program.kernel(&ranges, kernel, &source, whole)?;
            if !shared.is_empty() {
                program.common_args(id, &shared)?;
            }
            for (core, words) in own {
                program.runtime_args(id, core, &words)?;
            }
            kernels.push(id);
        }
        Ok(Self { workload: program.finish()?, kernels })
    }

    /// Runs it with the arguments of a plan of its shape.
    fn start(&self, turn: &Turn<'_>, plan: &Plan, wait: bool) -> Result<()> {
        for (id, (shared, own)) in self.kernels.iter().zip(plan.words()) {
            if !shared.is_empty() {
                self.workload.common_args(turn, *id, &shared)?;
            }
            for (core, words) in own {
                self.workload.runtime_args(turn, *id, core, &words)?;
            }
        }
        self.workload.run(turn, wait)
    }
}
