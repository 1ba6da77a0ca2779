//! The operations of the model, each as a plan of kernels. A plan decides which core does what;
//! the kernels in `kernels/` say how.

mod argmax;
mod attend;
mod copy;
mod elementwise;
mod embed;
mod matmul;
mod rms_norm;
mod rope;
mod write_kv;

pub use argmax::{PARTIAL_NUMBERS, argmax};
pub use attend::{PIECE_PAGES, attend, attend_partials, attend_units};
pub use copy::copy;
pub use elementwise::{Binary, Unary, binary, unary};
pub use embed::embed;
pub use matmul::{height, matmul};
pub use rms_norm::{head_norm, rms_norm};
pub use rope::{Rotations, rope};
pub use write_kv::write_kv;

use muse_core::quant::tile::TileFormat;

use crate::matrix::Ids;
use crate::program::{Accessor, CircularBuffer, Kernel, Processor};

/// Where results wait to be written.
const OUT: u32 = 16;

fn pages(index: u32, format: TileFormat, pages: u32) -> CircularBuffer {
    CircularBuffer { index, format, pages, whole: false }
}

/// Pages of F32 values that are only copied to the registers.
fn whole_pages(index: u32, count: u32) -> CircularBuffer {
    CircularBuffer { whole: true, ..pages(index, TileFormat::F32, count) }
}

/// Room for a page of numbers, which needs no format.
fn numbers(index: u32, ids: &Ids) -> CircularBuffer {
    let tile = TileFormat::Bf16;
    pages(index, tile, ids.buffer.page_bytes().div_ceil(tile.bytes() as u32))
}

/// A kernel that reads, and uses so many buffers of the device.
fn reader(source: &'static str, constants: Vec<u32>, buffers: usize) -> Kernel {
    let accessors = vec![Accessor::Dram; buffers];
    Kernel {
        source,
        processor: Processor::Reader,
        constants,
        accessors,
        defines: Vec::new(),
        shared: 0,
    }
}

/// A kernel that writes, and uses so many buffers of the device.
fn writer(source: &'static str, constants: Vec<u32>, buffers: usize) -> Kernel {
    Kernel { processor: Processor::Writer, ..reader(source, constants, buffers) }
}

fn compute(source: &'static str, constants: Vec<u32>, defines: Vec<&'static str>) -> Kernel {
    Kernel {
        source,
        processor: Processor::Compute,
        constants,
        accessors: Vec::new(),
        defines,
        shared: 0,
    }
}
