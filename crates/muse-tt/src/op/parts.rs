//! Kernels and circular buffers that the plans of several operations share.

use muse_core::quant::tile::TileFormat;

use crate::matrix::IndexBuffer;
use crate::plan::{Accessor, CircularBuffer, Kernel, Processor};

/// The circular buffer from which results are written.
pub(super) const OUT: u32 = 16;

const WRITE_TILES: &str = kernel!("elementwise/writer.cpp");

/// A circular buffer of `count` tiles.
pub(super) fn tile_buffer(index: u32, format: TileFormat, count: u32) -> CircularBuffer {
    CircularBuffer { index, format, pages: count, unpack_to_f32: false }
}

/// A circular buffer of F32 tiles that are copied to the registers with all of their bits.
pub(super) fn f32_tile_buffer(index: u32, count: u32) -> CircularBuffer {
    CircularBuffer { unpack_to_f32: true, ..tile_buffer(index, TileFormat::F32, count) }
}

/// A circular buffer with space for one page of indices, whose tile format has no meaning.
pub(super) fn index_page(index: u32, indices: &IndexBuffer) -> CircularBuffer {
    let tile = TileFormat::Bf16;
    tile_buffer(index, tile, indices.buffer.page_bytes().div_ceil(tile.bytes() as u32))
}

/// A kernel of the reading processor that accesses `buffers` buffers of the device.
pub(super) fn reader(source: &'static str, constants: Vec<u32>, buffers: usize) -> Kernel {
    let accessors = vec![Accessor::Dram; buffers];
    Kernel { source, processor: Processor::Reader, constants, accessors, defines: Vec::new() }
}

/// A kernel of the writing processor that accesses `buffers` buffers of the device.
pub(super) fn writer(source: &'static str, constants: Vec<u32>, buffers: usize) -> Kernel {
    Kernel { processor: Processor::Writer, ..reader(source, constants, buffers) }
}

/// A kernel of the compute processors.
pub(super) fn compute(
    source: &'static str,
    constants: Vec<u32>,
    defines: Vec<&'static str>,
) -> Kernel {
    Kernel { source, processor: Processor::Compute, constants, accessors: Vec::new(), defines }
}

/// Writes a run of tiles from [`OUT`]. Arguments: the matrix, the first tile, the number of tiles.
pub(super) fn tile_writer() -> Kernel {
    writer(WRITE_TILES, Vec::new(), 1)
}
