//! The compiled programs of a device, and traces of them.

mod compiled;
mod trace;
mod workload;

use std::collections::HashMap;
use std::sync::Arc;

use muse_core::Result;

use crate::device::Device;
use crate::kernel_cost::{CostCounter, KernelCost};
use crate::plan::{Plan, ProgramSpec};
use compiled::Compiled;
pub(crate) use trace::Recording;
pub use trace::Trace;

/// The compiled programs of one device.
pub struct Programs {
    device: Device,
    compiled: HashMap<ProgramSpec, Arc<Compiled>>,
    counter: Option<CostCounter>,
}

impl Programs {
    /// No programs yet.
    pub fn new(device: &Device) -> Self {
        Self { device: device.clone(), compiled: HashMap::new(), counter: None }
    }

    /// No programs yet. Those that will be compiled count their cost.
    ///
    /// # Errors
    /// [`muse_core::Error::Exhausted`] when the cores have no memory for the counters.
    pub fn with_cost_counter(device: &Device) -> Result<Self> {
        let counter = Some(CostCounter::new(device)?);
        Ok(Self { counter, ..Self::new(device) })
    }

    /// The cost of all runs so far; `None` without a cost counter.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn cost(&self) -> Result<Option<KernelCost>> {
        self.counter.as_ref().map(CostCounter::cost).transpose()
    }

    /// Number of compiled programs.
    pub fn len(&self) -> usize {
        self.compiled.len()
    }

    /// Whether no program was compiled yet.
    pub fn is_empty(&self) -> bool {
        self.compiled.is_empty()
    }

    /// The device that runs them.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Starts a plan, compiling it if its spec is new. Returns after its end if `wait` is set, else
    /// as soon as it is enqueued.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when it does not compile or the device fails.
    pub fn run(&mut self, plan: &Plan, wait: bool) -> Result<()> {
        if let Some(compiled) = self.compiled.get(&plan.spec) {
            return compiled.run_plan(&self.device.lock(), plan, wait);
        }
        let compiled = Compiled::new(&self.device, plan, self.counter.as_ref())?;
        // The lock is released before a program that failed is dropped, because its drop locks too.
        let result = compiled.run(&self.device.lock(), wait);
        result?;
        self.compiled.insert(plan.spec.clone(), Arc::new(compiled));
        Ok(())
    }

    /// Runs plans one after the other, waiting for each, then records them as a trace, which runs
    /// them again on the current contents of their buffers. No other thread can start anything on
    /// the device while it records, and everything was compiled before.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails or cannot record.
    pub fn record(&mut self, plans: &[Plan]) -> Result<Trace> {
        plans.iter().try_for_each(|plan| self.run(plan, true))?;
        let recording = Recording::begin(&self.device)?;
        let mut programs = Vec::with_capacity(plans.len());
        for plan in plans {
            let compiled = &self.compiled[&plan.spec];
            compiled.run_plan(recording.lock(), plan, false)?;
            programs.push(compiled.clone());
        }
        recording.end(programs)
    }
}
