//! What a program costs, counted by the kernels that really run: their sources get a part before
//! them that counts what they move and multiply into the memory of their cores.

use std::borrow::Cow;

use muse_core::Result;

use crate::buffer::Buffer;
use crate::device::Device;
use crate::program::{Kernel, Processor};

const DATA: &str = include_str!("../kernels/cost/data.h");
const COMPUTE: &str = include_str!("../kernels/cost/compute.h");

/// Multiply-adds of a product of two tiles.
const PRODUCT: u64 = 32 * 32 * 32;
/// Words that each kernel of a core has.
const WORDS: usize = 5;
/// Kernels of a core.
const KERNELS: usize = 3;
/// Bytes of a core, which are read at once.
const CORE_BYTES: usize = 64;

/// What was counted, over all cores and runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes read from DRAM.
    pub read: u64,
    /// Bytes written to DRAM.
    pub written: u64,
    /// Bytes from core to core; what is sent to several counts for each.
    pub between: u64,
    /// Of products of tiles, whole tiles.
    pub multiply_adds: u64,
    /// Cores that ran a kernel.
    pub cores: u64,
}

impl Cost {
    /// Bytes that crossed the network.
    pub fn network(&self) -> u64 {
        self.read + self.written + self.between
    }
}

/// Counts in the memory of every core.
pub(crate) struct Counter {
    counts: Buffer,
}

impl Counter {
    /// All zero.
    pub(crate) fn new(device: &Device) -> Result<Self> {
        let (columns, rows) = device.grid();
        let cores = u64::from(columns * rows);
        let counts = Buffer::in_cores(device, cores * CORE_BYTES as u64, CORE_BYTES as u32)?;
        counts.write(&vec![0; counts.bytes() as usize])?;
        Ok(Self { counts })
    }

    /// The source of a kernel, with what counts.
    pub(crate) fn source<'a>(&self, kernel: &'a Kernel) -> Cow<'a, str> {
        let (before, slot) = match kernel.processor {
            Processor::Reader => (DATA, 0),
            Processor::Writer => (DATA, 1),
            Processor::Compute => (COMPUTE, 2),
        };
        let at = self.counts.address() + (slot * WORDS * size_of::<u32>()) as u64;
        let source = kernel.source;
        Cow::Owned(format!(
            "{before}\n{source}\n#undef kernel_main\n\
             void kernel_main() {{ muse_cost_main(); muse_cost::keep({at}); }}\n"
        ))
    }

    /// What was counted.
    pub(crate) fn cost(&self) -> Result<Cost> {
        let mut bytes = vec![0; self.counts.bytes() as usize];
        self.counts.read(&mut bytes)?;
        let words: Vec<u64> =
            bytes.as_chunks().0.iter().map(|word| u64::from(u32::from_le_bytes(*word))).collect();
        let mut cost = Cost::default();
        for core in words.chunks_exact(CORE_BYTES / size_of::<u32>()) {
            let kernels: Vec<&[u64]> = core.chunks_exact(WORDS).take(KERNELS).collect();
            for kernel in &kernels {
                cost.read += kernel[0];
                cost.written += kernel[1];
                cost.between += kernel[2];
                cost.multiply_adds += PRODUCT * kernel[4];
            }
            cost.cores += u64::from(kernels.iter().any(|kernel| kernel[3] != 0));
        }
        Ok(cost)
    }
}
