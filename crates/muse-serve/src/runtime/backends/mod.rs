//! The backends of this build, and what each must provide. A new one is a file beside this one
//! with its [`BackendFactory`], its `mod` and its entry in [`Backends::default`].

#[cfg(feature = "cpu")]
mod cpu;

use std::sync::Arc;
use std::time::Duration;

use muse_core::contract::{Backend, Drafter, ModelSizes, TargetModel, TextSpec, WeightSource};
use muse_core::{Error, Result};

use super::{LoadOptions, Loaded, MemoryPlan, Progress, Roofline, loader, models};

/// Called with how many tensors are loaded, and how many there are.
pub type TensorProgress<'a> = dyn FnMut(usize, usize) + 'a;

/// Opens devices of one kind and knows what is particular to them.
pub trait BackendFactory: Send + Sync + 'static {
    /// The device.
    type Device: Backend;

    /// What `--backend` calls it.
    fn name(&self) -> &'static str;

    /// Refuses options that mean nothing to this device.
    ///
    /// # Errors
    /// [`Error::Invalid`] or [`Error::Unsupported`], naming the flag.
    fn check(&self, options: &LoadOptions) -> Result<()>;

    /// Opens the device. Called after [`BackendFactory::check`].
    ///
    /// # Errors
    /// What the device returns.
    fn open(&self, options: &LoadOptions) -> Result<Self::Device>;

    /// Measures how fast the device reads and computes, for about `time` each.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a device that cannot be measured, [`Error::Exhausted`] when it
    /// has no memory to read.
    fn measure_roofline(&self, options: &LoadOptions, time: Duration) -> Result<Roofline>;

    /// Loads the text model; `captured_layers` are those whose output the drafter reads. A device
    /// that wants whole graphs returns its own [`TargetModel`].
    ///
    /// # Errors
    /// As [`muse_core::model::Model::new`].
    fn load_target(
        &self,
        device: &Arc<Self::Device>,
        source: &dyn WeightSource,
        sizes: &ModelSizes,
        captured_layers: &[usize],
        progress: &mut TensorProgress<'_>,
    ) -> Result<Box<dyn TargetModel<Self::Device>>> {
        models::target(device, source, sizes, captured_layers, progress)
    }

    /// Loads the drafter for `target`. A device that wants whole graphs returns its own
    /// [`Drafter`].
    ///
    /// # Errors
    /// As [`muse_dflash::Dflash::new`].
    fn load_drafter(
        &self,
        device: &Arc<Self::Device>,
        source: &dyn WeightSource,
        target: &TextSpec,
        sizes: &ModelSizes,
        progress: &mut TensorProgress<'_>,
    ) -> Result<Box<dyn Drafter<Self::Device>>> {
        models::drafter(device, source, target, sizes, progress)
    }
}

/// The backends that can be chosen by name.
pub struct Backends(Vec<Box<dyn ErasedFactory>>);

impl Default for Backends {
    /// Those of this build, the preferred one first.
    fn default() -> Self {
        Self(vec![
            #[cfg(feature = "cpu")]
            Box::new(cpu::CpuFactory),
        ])
    }
}

impl Backends {
    /// No backend.
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// Adds a backend behind those that are there.
    #[must_use]
    pub fn with(mut self, factory: impl BackendFactory) -> Self {
        self.0.push(Box::new(factory));
        self
    }

    /// Their names, the preferred one first.
    pub fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|factory| factory.name()).collect()
    }

    /// Loads a model on the backend that `options` name. See [`super::load`].
    ///
    /// # Errors
    /// As [`super::load`].
    pub fn load(&self, options: &LoadOptions, progress: &mut Progress<'_>) -> Result<Loaded> {
        self.find(options)?.load(options, progress)
    }

    /// Computes the memory that a model takes, without loading it. See
    /// [`super::estimate_memory`].
    ///
    /// # Errors
    /// As [`super::load`].
    pub fn estimate_memory(&self, options: &LoadOptions) -> Result<MemoryPlan> {
        self.find(options)?.estimate_memory(options)
    }

    /// Measures the device that `options` name, for about `time` each limit.
    ///
    /// # Errors
    /// As [`BackendFactory::measure_roofline`].
    pub fn measure_roofline(&self, options: &LoadOptions, time: Duration) -> Result<Roofline> {
        self.find(options)?.measure_roofline(options, time)
    }

    fn find(&self, options: &LoadOptions) -> Result<&dyn ErasedFactory> {
        let name = options.backend.as_deref();
        let found = self.0.iter().find(|factory| name.is_none_or(|name| factory.name() == name));
        let factory = found.ok_or_else(|| {
            Error::Unsupported(match name {
                Some(name) => format!(
                    "--backend {name} is not in this build, which has {:?}; build muse with its \
                     cargo feature",
                    self.names()
                ),
                None => "this build has no backend; build muse with the cargo feature of one, \
                         such as cpu"
                    .to_owned(),
            })
        })?;
        factory.check(options)?;
        Ok(&**factory)
    }
}

/// A [`BackendFactory`] whose device type is erased.
trait ErasedFactory: Send + Sync {
    fn name(&self) -> &'static str;
    fn check(&self, options: &LoadOptions) -> Result<()>;
    fn measure_roofline(&self, options: &LoadOptions, time: Duration) -> Result<Roofline>;
    fn load(&self, options: &LoadOptions, progress: &mut Progress<'_>) -> Result<Loaded>;
    fn estimate_memory(&self, options: &LoadOptions) -> Result<MemoryPlan>;
}

impl<F: BackendFactory> ErasedFactory for F {
    fn name(&self) -> &'static str {
        BackendFactory::name(self)
    }

    fn check(&self, options: &LoadOptions) -> Result<()> {
        BackendFactory::check(self, options)
    }

    fn measure_roofline(&self, options: &LoadOptions, time: Duration) -> Result<Roofline> {
        BackendFactory::measure_roofline(self, options, time)
    }

    fn load(&self, options: &LoadOptions, progress: &mut Progress<'_>) -> Result<Loaded> {
        loader::load(self, options, progress)
    }

    fn estimate_memory(&self, options: &LoadOptions) -> Result<MemoryPlan> {
        loader::estimate(self, options)
    }
}

#[cfg(all(test, feature = "nano"))]
mod tests;
