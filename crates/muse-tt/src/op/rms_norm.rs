//! RMS norm of rows and of the heads of rows.

use std::ops::Range;

use muse_core::quant::tile::{SIDE, TileFormat};

use super::parts::{OUT, compute, reader, tile_buffer, tile_writer};
use crate::cores::Cores;
use crate::device::Device;
use crate::matrix::Matrix;
use crate::plan::{Arg, CircularBuffer, Kernel, Plan, ProgramSpec};

const READER: &str = kernel!("rms_norm/reader.cpp");
const COMPUTE: &str = kernel!("pack.h", "rms_norm/compute.cpp");

/// `out = x / sqrt(mean(x²) + eps) · weight` by row; `weight` is `[1, cols]`, `None` means ones.
/// The columns are whole tiles, because padding would count in the mean.
pub fn rms_norm(x: &Matrix, weight: Option<&Matrix>, eps: f32, out: &Matrix, cores: Cores) -> Plan {
    normed(x, weight, x.shape().1, eps, out, cores)
}

/// The same for every head of a row: heads as wide as the weight, in whole tiles. `out` may be `x`.
pub fn head_norm(x: &Matrix, weight: &Matrix, eps: f32, out: &Matrix, cores: Cores) -> Plan {
    normed(x, Some(weight), weight.shape().1, eps, out, cores)
}

/// Tiles of a group, whose squares are added first. The sums of the groups are then added in order,
/// so that the bits of a row do not depend on how many cores share it. In smaller groups, sending
/// and adding a sum would cost as much as squaring the group.
const GROUP_SIZE: u32 = 8;

/// The norm of parts of rows, `width` columns wide. The tiles of a part are contiguous, as are the
/// parts of a row, so that each part is a row to the kernels. Where there are more cores than rows,
/// several cores share a row, each with groups of its own.
fn normed(
    x: &Matrix,
    weight: Option<&Matrix>,
    width: usize,
    eps: f32,
    out: &Matrix,
    cores: Cores,
) -> Plan {
    assert_eq!(x.shape(), out.shape(), "the result has the shape of what it is made from");
    assert!(x.shape().1.is_multiple_of(width), "{} columns in parts of {width}", x.shape().1);
    assert!(width.is_multiple_of(SIDE), "{width} columns are not whole tiles");
    assert!(weight.is_none_or(|weight| weight.shape() == (1, width)), "a weight for each column");
    let across = (width / SIDE) as u32;
    let down = x.tile_shape().0 * (x.shape().1 / width) as u32;
    let share = Share::new(down, across, cores);
    let spec = ProgramSpec {
        cores: share.cores,
        buffers: share.buffers(x, weight, out),
        kernels: share.kernels(weight.is_some()),
        semaphores: if share.parts > 1 { 2 } else { 0 },
    };
    let from = [Some(x), weight].into_iter().flatten();
    let from: Vec<Arg> = from.map(|matrix| Arg::address(&matrix.buffer)).collect();
    let to = Arg::address(&out.buffer);
    let constants = [Arg::F32(1.0 / width as f32), Arg::F32(eps)];
    let mut args = vec![Vec::new(); 3];
    for (core, unit, rows) in share.cores.split(down * share.parts) {
        let (row, part) = (unit / share.parts, unit % share.parts);
        let tiles = share.tiles(part);
        let (first, count) = (Arg::U32(row * across + tiles.start), tiles.len() as u32);
        let run = [first, Arg::U32(tiles.start), Arg::U32(count), Arg::U32(rows)];
        let exchange = share.exchange(x.device(), row, part);
        args[0].push((core, [&from[..], &run, &exchange].concat()));
        let own = [rows, count, u32::from(part == 0)].map(Arg::U32);
        args[1].push((core, [&own[..], &constants].concat()));
        args[2].push((core, vec![to, first, Arg::U32(rows * count)]));
    }
    Plan { spec, args }
}

/// Which cores compute which parts of which rows.
struct Share {
    /// Tiles and groups of a row.
    across: u32,
    groups: u32,
    /// Cores that share a row; a core without such a share may have several rows.
    parts: u32,
    cores: Cores,
}

impl Share {
    fn new(down: u32, across: u32, cores: Cores) -> Self {
        let groups = across.div_ceil(GROUP_SIZE);
        let parts = (cores.count() / down).clamp(1, groups);
        Self { across, groups, parts, cores: cores.for_work(down * parts) }
    }

    fn groups(&self, part: u32) -> Range<u32> {
        part * self.groups / self.parts..(part + 1) * self.groups / self.parts
    }

    fn tiles(&self, part: u32) -> Range<u32> {
        let groups = self.groups(part);
        groups.start * GROUP_SIZE..(groups.end * GROUP_SIZE).min(self.across)
    }

    fn buffers(&self, x: &Matrix, weight: Option<&Matrix>, out: &Matrix) -> Vec<CircularBuffer> {
        let f32 = TileFormat::F32;
        let groups = self.groups.div_ceil(self.parts);
        let tiles = (groups * GROUP_SIZE).min(self.across);
        let mut buffers = vec![
            tile_buffer(0, x.format(), tiles),
            tile_buffer(2, f32, self.groups),
            tile_buffer(3, TileFormat::Bf16, 1),
            tile_buffer(4, f32, 1),
            tile_buffer(OUT, out.format(), 2),
        ];
        if let Some(weight) = weight {
            buffers.extend([tile_buffer(1, weight.format(), tiles), tile_buffer(5, f32, 1)]);
        }
        if self.parts > 1 {
            buffers.extend([tile_buffer(6, f32, groups), tile_buffer(7, f32, 1)]);
        }
        buffers
    }

    fn kernels(&self, weighted: bool) -> Vec<Kernel> {
        let defines = [(weighted, "MUSE_WEIGHTED"), (self.parts > 1, "MUSE_SHARED")];
        let defines: Vec<_> =
            defines.into_iter().filter_map(|(is, name)| is.then_some(name)).collect();
        let reader = reader(READER, vec![self.groups, self.parts], 1 + usize::from(weighted));
        let reader = Kernel { defines: defines.clone(), ..reader };
        vec![reader, compute(COMPUTE, vec![self.groups, GROUP_SIZE], defines), tile_writer()]
    }

    /// Arguments of the exchange between the cores of a row: first group and number of groups of
    /// the part, and network coordinates of the first core of the row, for this one of all its
    /// cores.
    fn exchange(&self, device: &Device, row: u32, part: u32) -> Vec<Arg> {
        if self.parts == 1 {
            return Vec::new();
        }
        let groups = self.groups(part);
        let mut words = vec![groups.start, groups.len() as u32];
        let cores = if part == 0 { self.parts } else { 1 };
        for core in row * self.parts..row * self.parts + cores {
            let (x, y) = device.network(self.cores.core(core));
            words.extend([x, y]);
        }
        words.into_iter().map(Arg::U32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tile_is_in_one_part_and_groups_are_whole() {
        for (down, across, count, parts) in
            [(1, 208, 130, 26), (8, 208, 130, 16), (64, 8, 130, 1), (3, 13, 7, 2), (1, 4, 9, 1)]
        {
            let share = Share::new(down, across, Cores::grid(count, 1));
            assert_eq!((share.parts, share.cores.count()), (parts, down * parts));
            let mut next = 0;
            for part in 0..parts {
                let tiles = share.tiles(part);
                assert!(
                    tiles.start == next && next.is_multiple_of(GROUP_SIZE) && !tiles.is_empty()
                );
                next = tiles.end;
            }
            assert_eq!(next, across);
        }
    }
}
