//! RMS norm of rows and of their heads.

use std::ops::Range;

use muse_core::quant::tile::{SIDE, TileFormat};

use super::{OUT, compute, elementwise, pages, reader};
use crate::cores::Cores;
use crate::device::Device;
use crate::matrix::Matrix;
use crate::program::{Arg, CircularBuffer, Kernel, Plan, Shape};

const READER: &str = kernel!("rms_norm/reader.cpp");
const COMPUTE: &str = kernel!("pack.h", "rms_norm/compute.cpp");

/// `out = x / sqrt(mean(x²) + eps) · weight` by row; `weight` is `[1, cols]`, none means ones.
/// Columns are whole tiles, for what fills them up would count.
pub fn rms_norm(x: &Matrix, weight: Option<&Matrix>, eps: f32, out: &Matrix, cores: Cores) -> Plan {
    normed(x, weight, x.shape().1, eps, out, cores)
}

/// The same of every head of a row: heads of the weight's width lie side by side, in whole tiles.
/// `out` may be `x`.
pub fn head_norm(x: &Matrix, weight: &Matrix, eps: f32, out: &Matrix, cores: Cores) -> Plan {
    normed(x, Some(weight), weight.shape().1, eps, out, cores)
}

/// Tiles whose squares are added up first. The sums of such blocks are then added up in order: a
/// row's bits do not depend on how many cores share it. With fewer tiles a block, its sum would be
/// as much to send and to add as the block is to square.
const BLOCK: u32 = 8;

/// The norm of parts of rows that are `width` wide. The tiles of such a part lie one behind the
/// other, as do the parts of a row and the rows: to the kernels each part is a row. Where there are
/// more cores than rows, several share one, each with blocks of its own.
fn normed(
    x: &Matrix,
    weight: Option<&Matrix>,
    width: usize,
    eps: f32,
    out: &Matrix,
    cores: Cores,
) -> Plan {
    assert_eq!(x.shape(), out.shape(), "the result has the shape of what it is made from");
    assert!(x.shape().1.is_multiple_of(width), "{} columns are parts of {width}", x.shape().1);
    assert!(width.is_multiple_of(SIDE), "{width} columns are no whole tiles");
    assert!(weight.is_none_or(|weight| weight.shape() == (1, width)), "a weight a column");
    let across = (width / SIDE) as u32;
    let down = x.tile_shape().0 * (x.shape().1 / width) as u32;
    let share = Share::new(down, across, cores);
    let shape = Shape {
        cores: share.cores,
        buffers: share.buffers(x, weight, out),
        kernels: share.kernels(weight.is_some()),
        semaphores: if share.parts > 1 { 2 } else { 0 },
    };
    let from = [Some(x), weight].into_iter().flatten();
    let from: Vec<Arg> = from.map(|matrix| Arg::address(&matrix.buffer)).collect();
    let to = Arg::address(&out.buffer);
    let reals = [Arg::Real(1.0 / width as f32), Arg::Real(eps)];
    let mut args = vec![Vec::new(); 3];
    for (core, unit, rows) in share.cores.split(down * share.parts) {
        let (row, part) = (unit / share.parts, unit % share.parts);
        let tiles = share.tiles(part);
        let (first, count) = (Arg::Number(row * across + tiles.start), tiles.len() as u32);
        let run = [first, Arg::Number(tiles.start), Arg::Number(count), Arg::Number(rows)];
        let meeting = share.meeting(x.device(), row, part);
        args[0].push((core, [&from[..], &run, &meeting].concat()));
        let numbers = [rows, count, u32::from(part == 0)].map(Arg::Number);
        args[1].push((core, [&numbers[..], &reals].concat()));
        args[2].push((core, vec![to, first, Arg::Number(rows * count)]));
    }
    Plan { shape, args }
}

/// Which cores have which parts of which rows.
struct Share {
    across: u32,
    blocks: u32,
    /// Cores of a row; one may have several rows.
    parts: u32,
    cores: Cores,
}

impl Share {
    fn new(down: u32, across: u32, cores: Cores) -> Self {
        let blocks = across.div_ceil(BLOCK);
        let parts = (cores.count() / down).clamp(1, blocks);
        Self { across, blocks, parts, cores: cores.for_work(down * parts) }
    }

    fn blocks(&self, part: u32) -> Range<u32> {
        part * self.blocks / self.parts..(part + 1) * self.blocks / self.parts
    }

    fn tiles(&self, part: u32) -> Range<u32> {
        let blocks = self.blocks(part);
        blocks.start * BLOCK..(blocks.end * BLOCK).min(self.across)
    }

    fn buffers(&self, x: &Matrix, weight: Option<&Matrix>, out: &Matrix) -> Vec<CircularBuffer> {
        let f32 = TileFormat::F32;
        let blocks = self.blocks.div_ceil(self.parts);
        let tiles = (blocks * BLOCK).min(self.across);
        let mut buffers = vec![
            pages(0, x.format(), tiles),
            pages(2, f32, self.blocks),
            pages(3, TileFormat::Bf16, 1),
            pages(4, f32, 1),
            pages(OUT, out.format(), 2),
        ];
        if let Some(weight) = weight {
            buffers.extend([pages(1, weight.format(), tiles), pages(5, f32, 1)]);
        }
        if self.parts > 1 {
            buffers.extend([pages(6, f32, blocks), pages(7, f32, 1)]);
        }
        buffers
    }

    fn kernels(&self, weighted: bool) -> Vec<Kernel> {
        let defines = [(weighted, "MUSE_WEIGHTED"), (self.parts > 1, "MUSE_SHARED")];
        let defines: Vec<_> =
            defines.into_iter().filter_map(|(is, name)| is.then_some(name)).collect();
        let reader = reader(READER, vec![self.blocks, self.parts], 1 + usize::from(weighted));
        let reader = Kernel { defines: defines.clone(), ..reader };
        vec![reader, compute(COMPUTE, vec![self.blocks, BLOCK], defines), elementwise::run_writer()]
    }

    /// Where the sums of a part go, and where the factor goes from there: first block and number of
    /// them, the first core of the row, and for that one all of them.
    fn meeting(&self, device: &Device, row: u32, part: u32) -> Vec<Arg> {
        if self.parts == 1 {
            return Vec::new();
        }
        let blocks = self.blocks(part);
        let mut numbers = vec![blocks.start, blocks.len() as u32];
        let known = if part == 0 { self.parts } else { 1 };
        for core in row * self.parts..row * self.parts + known {
            let (x, y) = device.network(self.cores.core(core));
            numbers.extend([x, y]);
        }
        numbers.into_iter().map(Arg::Number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tile_is_in_one_part_and_blocks_are_whole() {
        for (down, across, count, parts) in
            [(1, 208, 130, 26), (8, 208, 130, 16), (64, 8, 130, 1), (3, 13, 7, 2), (1, 4, 9, 1)]
        {
            let share = Share::new(down, across, Cores::grid(count, 1));
            assert_eq!((share.parts, share.cores.count()), (parts, down * parts));
            let mut next = 0;
            for part in 0..parts {
                let tiles = share.tiles(part);
                assert!(tiles.start == next && next.is_multiple_of(BLOCK) && !tiles.is_empty());
                next = tiles.end;
            }
            assert_eq!(next, across);
        }
    }
}
