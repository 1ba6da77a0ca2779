//! Rotary position embedding.

use muse_core::Result;
use muse_core::contract::Rope;
use muse_core::quant::tile::{SIDE, TileFormat};

use super::parts::{OUT, compute, index_page, reader, tile_buffer, tile_writer};
use crate::buffer::Buffer;
use crate::cores::Cores;
use crate::device::Device;
use crate::matrix::{IndexBuffer, Matrix};
use crate::plan::{Arg, Kernel, Plan, ProgramSpec};

const READER: &str = kernel!("indices.h", "rope/reader.cpp");
const COMPUTE: &str = kernel!("pack.h", "rope/compute.cpp");

/// Cosines and sines of every position, a page of F32 values `[2, head_dim]` each. The sines of the
/// left half are negated.
pub struct RopeTable {
    buffer: Buffer,
    head_dim: usize,
}

impl RopeTable {
    /// The table of the positions below `positions`.
    ///
    /// # Errors
    /// [`muse_core::Error::Exhausted`] when the device has not enough memory.
    pub fn new(device: &Device, rope: &Rope, positions: usize) -> Result<Self> {
        let half = rope.head_dim / 2;
        let exponent = |j: usize| -2.0 * j as f64 / rope.head_dim as f64;
        let frequency = |j| f64::from(rope.theta).powf(exponent(j)) as f32;
        let frequencies: Vec<f32> = (0..half).map(frequency).collect();
        let mut bytes = Vec::with_capacity(8 * rope.head_dim * positions);
        for position in 0..positions {
            let angles = frequencies.iter().map(|f| (position as f32 * f).sin_cos());
            let (sin, cos): (Vec<f32>, Vec<f32>) = angles.unzip();
            let left = sin.iter().map(|sin| -sin);
            let row = cos.iter().chain(&cos).copied().chain(left).chain(sin.iter().copied());
            bytes.extend(row.flat_map(f32::to_le_bytes));
        }
        let buffer = Buffer::new(device, bytes.len() as u64, 8 * rope.head_dim as u32)?;
        buffer.write(&bytes)?;
        Ok(Self { buffer, head_dim: rope.head_dim })
    }
}

/// Rotates every head of `x`, BF16, by the position of its row, pairs `(j, j + head_dim / 2)`.
/// `positions` is padded to whole tiles, see [`crate::positions`]. `out` may be `x`.
pub fn rope(
    x: &Matrix,
    positions: &IndexBuffer,
    table: &RopeTable,
    out: &Matrix,
    cores: Cores,
) -> Plan {
    let (width, dim, bf16) = (x.shape().1, table.head_dim, TileFormat::Bf16);
    assert_eq!((x.shape(), x.format()), (out.shape(), bf16), "rows of BF16 in and out");
    assert!(width.is_multiple_of(dim), "{width} columns in heads of {dim}");
    let is_one_tile = dim == SIDE;
    assert!(
        is_one_tile || dim.is_multiple_of(2 * SIDE),
        "halves of heads of {dim} are not whole tiles"
    );
    let (down, tiles, heads) = (x.tile_shape().0, (dim / SIDE) as u32, (width / dim) as u32);
    positions.assert_capacity(SIDE as u32 * down);
    let cores = cores.for_work(down * heads);
    let mut buffers = vec![
        tile_buffer(0, bf16, 2 * tiles),
        tile_buffer(2, TileFormat::F32, tiles),
        tile_buffer(3, TileFormat::F32, tiles),
        index_page(4, positions),
        tile_buffer(OUT, out.format(), 2),
    ];
    let mut defines = Vec::new();
    if is_one_tile {
        buffers.push(tile_buffer(1, bf16, 2));
        defines.push("MUSE_ONE_TILE_HEADS");
    }
    let reader = Kernel {
        defines: defines.clone(),
        ..reader(READER, vec![tiles, heads, positions.buffer.page_bytes()], 3)
    };
    let kernels = vec![reader, compute(COMPUTE, vec![tiles, heads], defines), tile_writer()];
    let [from, table, at, to] =
        [&x.buffer, &table.buffer, &positions.buffer, &out.buffer].map(Arg::address);
    let mut args = vec![Vec::new(); 3];
    for (core, first, count) in cores.split(down * heads) {
        let [row, head] = [first / heads, first % heads].map(Arg::U32);
        args[0].push((core, vec![from, table, at, Arg::U32(first), Arg::U32(count), row, head]));
        args[1].push((core, vec![Arg::U32(count), head]));
        args[2].push((core, vec![to, Arg::U32(first * tiles), Arg::U32(count * tiles)]));
    }
    Plan { spec: ProgramSpec { cores, buffers, kernels, semaphores: 0 }, args }
}
