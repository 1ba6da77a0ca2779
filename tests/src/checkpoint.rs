//! The checkpoints of the tree.

use std::path::{Path, PathBuf};

use muse_core::Result;
use muse_core::contract::WeightSource;
use muse_cpu::{Cpu, CpuOptions};
use muse_testkit::{golden_dir, nano_dir};

/// A large model and its drafter.
pub struct Checkpoint {
    /// The large model.
    pub target: Box<dyn WeightSource>,
    /// The drafter.
    pub drafter: Box<dyn WeightSource>,
}

impl Checkpoint {
    /// The random model that shows every trap.
    pub fn tiny() -> Result<Self> {
        let dir = golden_dir().join("tiny");
        Self::open(&dir.join("target"), &dir.join("assistant"))
    }

    /// The trained model, as a HuggingFace folder.
    pub fn nano() -> Result<Self> {
        Self::open(&nano_dir().join("target"), &nano_dir().join("assistant"))
    }

    /// The trained model as handed-over GGUF files of a type: `bf16` or `q8_0`.
    pub fn nano_gguf(kind: &str) -> Result<Self> {
        let file =
            |name: &str| -> PathBuf { golden_dir().join(format!("nano/gguf/{name}.{kind}.gguf")) };
        Self::open(&file("target"), &file("dflash"))
    }

    /// Any two.
    pub fn open(target: &Path, drafter: &Path) -> Result<Self> {
        Ok(Self { target: open(target)?, drafter: open(drafter)? })
    }
}

fn open(path: &Path) -> Result<Box<dyn WeightSource>> {
    Ok(Box::new(muse_weights::Checkpoint::open(path)?))
}

/// A CPU of one thread: tests run side by side.
pub fn cpu() -> Cpu {
    Cpu::new(CpuOptions { threads: Some(1) }).expect("one thread")
}
