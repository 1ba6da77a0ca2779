//! The measured cost of programs: bytes moved and tile products, counted by the running kernels
//! themselves. A header placed before their sources counts into the L1 memory of their cores.

use std::borrow::Cow;

use muse_core::Result;

use crate::buffer::Buffer;
use crate::device::Device;
use crate::plan::{Kernel, Processor};

const DATA: &str = include_str!("../kernels/cost/data.h");
const COMPUTE: &str = include_str!("../kernels/cost/compute.h");

/// Multiply-adds of one tile product.
const TILE_PRODUCT: u64 = 32 * 32 * 32;
/// Counter words of each kernel: see `kernels/cost/data.h`.
const KERNEL_WORDS: usize = 5;
/// Kernels of a core: reader, writer, compute.
const KERNELS: usize = 3;
/// Counter bytes of a core, one page of the buffer.
const CORE_BYTES: usize = 64;

/// Cost summed over all cores and runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCost {
    /// Bytes read from DRAM.
    pub dram_read: u64,
    /// Bytes written to DRAM.
    pub dram_written: u64,
    /// Bytes from core to core; a multicast counts once for each receiver.
    pub core_to_core: u64,
    /// Multiply-adds of tile products, padding included.
    pub multiply_adds: u64,
    /// Cores that ran a kernel.
    pub cores: u64,
}

impl KernelCost {
    /// Bytes that crossed the network on chip.
    pub fn network(&self) -> u64 {
        self.dram_read + self.dram_written + self.core_to_core
    }
}

/// Counters in the L1 memory of every core.
pub(crate) struct CostCounter {
    counts: Buffer,
}

impl CostCounter {
    /// Counters at zero.
    pub(crate) fn new(device: &Device) -> Result<Self> {
        let (columns, rows) = device.grid();
        let cores = u64::from(columns * rows);
        let counts = Buffer::in_cores(device, cores * CORE_BYTES as u64, CORE_BYTES as u32)?;
        counts.write(&vec![0; counts.bytes() as usize])?;
        Ok(Self { counts })
    }

    /// The source of a kernel with the counting header.
    pub(crate) fn source<'a>(&self, kernel: &'a Kernel) -> Cow<'a, str> {
        let (header, slot) = match kernel.processor {
            Processor::Reader => (DATA, 0),
            Processor::Writer => (DATA, 1),
            Processor::Compute => (COMPUTE, 2),
        };
        let at = self.counts.address() + (slot * KERNEL_WORDS * size_of::<u32>()) as u64;
        let source = kernel.source;
        Cow::Owned(format!(
            "{header}\n{source}\n#undef kernel_main\n\
             void kernel_main() {{ muse_cost_main(); muse_cost::store({at}); }}\n"
        ))
    }

    /// Reads the counters.
    pub(crate) fn cost(&self) -> Result<KernelCost> {
        let mut bytes = vec![0; self.counts.bytes() as usize];
        self.counts.read(&mut bytes)?;
        let words: Vec<u64> =
            bytes.as_chunks().0.iter().map(|word| u64::from(u32::from_le_bytes(*word))).collect();
        let mut cost = KernelCost::default();
        for core in words.chunks_exact(CORE_BYTES / size_of::<u32>()) {
            let kernels: Vec<&[u64]> = core.chunks_exact(KERNEL_WORDS).take(KERNELS).collect();
            for kernel in &kernels {
                cost.dram_read += kernel[0];
                cost.dram_written += kernel[1];
                cost.core_to_core += kernel[2];
                cost.multiply_adds += TILE_PRODUCT * kernel[4];
            }
            cost.cores += u64::from(kernels.iter().any(|kernel| kernel[3] != 0));
        }
        Ok(cost)
    }
}
