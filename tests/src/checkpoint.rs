//! The checkpoints of the tree.

use std::path::{Path, PathBuf};

use muse_core::Result;
use muse_core::contract::WeightSource;
use muse_core::quant::Format;
use muse_cpu::{Cpu, CpuOptions};
use muse_testkit::{golden_dir, nano_dir};

use crate::retype::retype;

/// A target model and its drafter.
pub struct Checkpoint {
    /// The target model.
    pub target: Box<dyn WeightSource>,
    /// The drafter.
    pub drafter: Box<dyn WeightSource>,
}

impl Checkpoint {
    /// The small model of random weights.
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
        Self::open(&gguf("target", kind), &gguf("dflash", kind))
    }

    /// The trained model as GGUF files whose matrices were converted from BF16.
    pub fn nano_retyped(format: Format) -> Result<Self> {
        let source = |name: &str| -> Result<Box<dyn WeightSource>> {
            let bytes = std::fs::read(gguf(name, "bf16")).expect("part of the tree");
            let files = [(format!("{name}.gguf"), retype(&bytes, format).into())];
            Ok(Box::new(muse_weights::Checkpoint::from_files(files)?))
        };
        Ok(Self { target: source("target")?, drafter: source("dflash")? })
    }

    /// The checkpoints at two paths.
    pub fn open(target: &Path, drafter: &Path) -> Result<Self> {
        Ok(Self { target: open(target)?, drafter: open(drafter)? })
    }
}

fn gguf(name: &str, kind: &str) -> PathBuf {
    golden_dir().join(format!("nano/gguf/{name}.{kind}.gguf"))
}

fn open(path: &Path) -> Result<Box<dyn WeightSource>> {
    Ok(Box::new(muse_weights::Checkpoint::open(path)?))
}

/// A CPU backend of one thread, since tests run side by side. It rounds no activations, so that its
/// results can be compared with the reference's.
pub fn cpu() -> Cpu {
    fast_cpu().exact()
}

/// A CPU backend of one thread as the server uses it: activations are rounded for packed weights.
pub fn fast_cpu() -> Cpu {
    Cpu::new(CpuOptions { threads: Some(1) }).expect("one thread")
}
