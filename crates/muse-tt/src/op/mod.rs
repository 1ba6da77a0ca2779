//! The operations of the model, each as a plan of kernels. A plan decides which core does what;
//! the kernels in `kernels/` say how.

mod elementwise;
mod embed;
mod matmul;
mod rms_norm;

pub use elementwise::{Binary, Unary, binary, unary};
pub use embed::embed;
pub use matmul::{height, matmul};
pub use rms_norm::rms_norm;

use muse_core::quant::tile::TileFormat;

use crate::program::{CircularBuffer, Kernel, Processor};

/// Where results wait to be written.
const OUT: u32 = 16;

fn pages(index: u32, format: TileFormat, pages: u32) -> CircularBuffer {
    CircularBuffer { index, format, pages }
}

fn compute(source: &'static str, constants: Vec<u32>, defines: Vec<&'static str>) -> Kernel {
    Kernel { source, processor: Processor::Compute, constants, accessors: Vec::new(), defines }
}
