//! Rotary positions.

use muse_core::Result;
use muse_core::contract::Rope;
use muse_core::quant::tile::{SIDE, TileFormat};

use super::{OUT, compute, elementwise, numbers, pages, reader};
use crate::buffer::Buffer;
use crate::cores::Cores;
use crate::device::Device;
use crate::matrix::{Ids, Matrix};
use crate::program::{Arg, Kernel, Plan, Shape};

const READER: &str = kernel!("numbers.h", "rope/reader.cpp");
const COMPUTE: &str = kernel!("pack.h", "rope/compute.cpp");

/// Cosines and sines of every position, a page of F32 values each, made for whole heads: the sines
/// of the left half are negative.
pub struct Rotations {
    buffer: Buffer,
    head_dim: usize,
}

impl Rotations {
    /// Those of the positions below `positions`.
    ///
    /// # Errors
    /// [`muse_core::Error::Exhausted`] when the device has no room.
    pub fn new(device: &Device, rope: &Rope, positions: usize) -> Result<Self> {
        let half = rope.head_dim / 2;
        let exponent = |j: usize| -2.0 * j as f64 / rope.head_dim as f64;
        let frequency = |j| f64::from(rope.theta).powf(exponent(j)) as f32;
        let frequencies: Vec<f32> = (0..half).map(frequency).collect();
        let mut bytes = Vec::with_capacity(8 * rope.head_dim * positions);
        for position in 0..positions {
            let turns = frequencies.iter().map(|f| (position as f32 * f).sin_cos());
            let (sin, cos): (Vec<f32>, Vec<f32>) = turns.unzip();
            let left = sin.iter().map(|sin| -sin);
            let row = cos.iter().chain(&cos).copied().chain(left).chain(sin.iter().copied());
            bytes.extend(row.flat_map(f32::to_le_bytes));
        }
        let buffer = Buffer::new(device, bytes.len() as u64, 8 * rope.head_dim as u32)?;
        buffer.write(&bytes)?;
        Ok(Self { buffer, head_dim: rope.head_dim })
    }
}

/// Rotates every head of `x` by its row's position, pairs `(j, j + head_dim / 2)`. There is a
/// position for every row of tiles that `x` has, also for those that fill it up. `out` may be `x`.
pub fn rope(
    x: &Matrix,
    positions: &Ids,
    rotations: &Rotations,
    out: &Matrix,
    cores: Cores,
) -> Plan {
    let (width, dim, bf16) = (x.shape().1, rotations.head_dim, TileFormat::Bf16);
    assert_eq!((x.shape(), x.format()), (out.shape(), bf16), "rows of BF16 in and out");
    assert!(width.is_multiple_of(dim), "{width} columns are heads of {dim}");
    let narrow = dim == SIDE;
    assert!(narrow || dim.is_multiple_of(2 * SIDE), "halves of heads of {dim} are no whole tiles");
    let (down, tiles, heads) = (x.tile_shape().0, (dim / SIDE) as u32, (width / dim) as u32);
    positions.assert_room(SIDE as u32 * down);
    let cores = cores.for_work(down * heads);
    let mut buffers = vec![
        pages(0, bf16, 2 * tiles),
        pages(2, TileFormat::F32, tiles),
        pages(3, TileFormat::F32, tiles),
        numbers(4, positions),
        pages(OUT, out.format(), 2),
    ];
    let mut defines = Vec::new();
    if narrow {
        buffers.push(pages(1, bf16, 2));
        defines.push("MUSE_NARROW");
    }
    let reader = Kernel {
        defines: defines.clone(),
        ..reader(READER, vec![tiles, heads, positions.buffer.page_bytes()], 3)
    };
    let kernels =
        vec![reader, compute(COMPUTE, vec![tiles, heads], defines), elementwise::run_writer()];
    let [from, table, at, to] =
        [&x.buffer, &rotations.buffer, &positions.buffer, &out.buffer].map(Arg::address);
    let mut args = vec![Vec::new(); 3];
    for (core, first, count) in cores.split(down * heads) {
        let [row, head] = [first / heads, first % heads].map(Arg::Number);
        args[0]
            .push((core, vec![from, table, at, Arg::Number(first), Arg::Number(count), row, head]));
        args[1].push((core, vec![Arg::Number(count), head]));
        args[2].push((core, vec![to, Arg::Number(first * tiles), Arg::Number(count * tiles)]));
    }
    Plan { shape: Shape { cores, buffers, kernels, semaphores: 0 }, args }
}
