//! Attention over pages.

use muse_core::Result;
use muse_core::quant::tile::{SIDE, TileFormat};

use super::{OUT, compute, numbers, pages, reader, whole_pages, writer};
use crate::cores::Cores;
use crate::matrix::Matrix;
use crate::pages::KvPages;
use crate::program::{Arg, CircularBuffer, Kernel, Plan, Shape};
use crate::segments::Segments;

const READER: &str = kernel!("segment.h", "attend/reader.cpp");
const COMPUTE: &str = kernel!("segment.h", "pack.h", "divide.h", "attend/compute.cpp");
const WRITER: &str = kernel!("segment.h", "lines.h", "attend/writer.cpp");
const COMBINE_READER: &str = kernel!("segment.h", "combine/reader.cpp");
const COMBINE: &str = kernel!("segment.h", "pack.h", "divide.h", "combine/compute.cpp");

/// Pages of a piece of a segment: so many that what it hands over is a twentieth of their bytes, and
/// that windows of the published model are rarely cut.
pub const PIECE_PAGES: usize = 256;

/// Room for what pieces of segments hand over: sums, total and largest scores of every head.
///
/// # Errors
/// [`muse_core::Error::Exhausted`] when the device has no room.
pub fn attend_partials(q: &Matrix, store: &KvPages, segments: &Segments) -> Result<Matrix> {
    let (dim, room) = (store.head_dim(), segments.room() as usize);
    let rows = SIDE * room * (q.shape().1 / dim);
    Matrix::new(q.device(), TileFormat::F32, rows, dim + 2 * SIDE)
}

/// Softmax attention of `q` `[rows, heads · head_dim]`, BF16, over the pages of `store` into the same
/// rows of `out`; query head `j` reads K/V head `j / (heads / kv_heads)`. Which rows, pages and keys
/// is read from `segments` on the device. All segments that there is room for are gone through: those
/// not in use cost a core a glance. The second plan puts pieces together, and has nothing to do when
/// there are none.
pub fn attend(
    q: &Matrix,
    store: &KvPages,
    segments: &Segments,
    partials: &Matrix,
    scale: f32,
    out: &Matrix,
    cores: Cores,
) -> [Plan; 2] {
    let (bf16, dim, room) = (TileFormat::Bf16, store.head_dim(), segments.room());
    assert_eq!((q.shape(), q.format()), (out.shape(), out.format()), "queries and results");
    assert_eq!(q.format(), bf16, "queries of BF16");
    assert!(q.shape().1.is_multiple_of(dim * store.heads()), "heads of {dim} in equal groups");
    let units = attend_units(q, store, segments, cores);
    let (heads, tiles) = ((q.shape().1 / dim) as u32, (dim / SIDE) as u32);
    let wanted = (TileFormat::F32, (room * heads, tiles + 2));
    assert_eq!((partials.format(), partials.tile_shape()), wanted, "room for what is handed over");
    let parts = Parts {
        room,
        units,
        each: heads / units,
        tiles,
        numbers: segments.ids.buffer.page_bytes(),
        listed: numbers(5, &segments.ids),
        cores: cores.for_work(room * units),
    };
    let addresses = Addresses {
        segments: Arg::address(&segments.ids.buffer),
        partials: Arg::address(&partials.buffer),
        out: Arg::address(&out.buffer),
    };
    let from = [q, &store.k, &store.v].map(|matrix| Arg::address(&matrix.buffer));
    let kv_heads = store.heads() as u32;
    [parts.pieces(kv_heads, from, &addresses, scale), parts.together(&addresses, scale)]
}

/// How the work is cut.
struct Parts {
    room: u32,
    /// Of a segment.
    units: u32,
    /// Heads of a unit, and tiles of a head.
    each: u32,
    tiles: u32,
    /// Bytes of a segment's numbers, and where they are listed.
    numbers: u32,
    listed: CircularBuffer,
    cores: Cores,
}

struct Addresses {
    segments: Arg,
    partials: Arg,
    out: Arg,
}

impl Parts {
    fn pieces(&self, kv_heads: u32, from: [Arg; 3], at: &Addresses, scale: f32) -> Plan {
        let &Self { units, each, tiles, numbers, listed, .. } = self;
        let bf16 = TileFormat::Bf16;
        let buffers = vec![
            pages(0, bf16, each * tiles),
            pages(1, bf16, 4 * tiles),
            pages(2, bf16, 4 * tiles),
            pages(3, bf16, 4),
            pages(4, bf16, 4),
            listed,
            pages(6, bf16, 2),
            pages(7, bf16, 1),
            pages(8, bf16, each + 1),
            pages(9, bf16, 2),
            whole_pages(10, 1),
            whole_pages(11, (each + 1) * (tiles + 1)),
            pages(12, bf16, 1),
            whole_pages(13, 2),
            pages(OUT, bf16, 2),
            pages(17, TileFormat::F32, 2),
        ];
        let kernels = vec![
            reader(READER, vec![tiles, each, units, kv_heads, numbers], 4),
            compute(COMPUTE, vec![tiles, each, listed.pages], Vec::new()),
            writer(WRITER, vec![each * tiles, units, numbers, each * (tiles + 2)], 3),
        ];
        let [q, k, v] = from;
        let written = [at.out, at.segments, at.partials];
        self.plan(buffers, kernels, &[q, k, v, at.segments], &written, scale)
    }

    fn together(&self, at: &Addresses, scale: f32) -> Plan {
        let &Self { units, each, tiles, numbers, listed, .. } = self;
        let buffers = vec![
            whole_pages(0, 2 * (tiles + 1)),
            whole_pages(1, 2),
            whole_pages(2, 2),
            whole_pages(3, 2),
            whole_pages(4, 2 * (tiles + 1)),
            listed,
            pages(12, TileFormat::Bf16, 1),
            pages(OUT, TileFormat::Bf16, 2),
        ];
        let writer = writer(WRITER, vec![each * tiles, units, numbers, 0], 2);
        let kernels = vec![
            reader(COMBINE_READER, vec![tiles, each, units, numbers], 2),
            compute(COMBINE, vec![tiles, each, listed.pages], Vec::new()),
            Kernel { defines: vec!["MUSE_COMBINE"], ..writer },
        ];
        self.plan(buffers, kernels, &[at.partials, at.segments], &[at.out, at.segments], scale)
    }

    fn plan(
        &self,
        buffers: Vec<CircularBuffer>,
        kernels: Vec<Kernel>,
        read: &[Arg],
        written: &[Arg],
        scale: f32,
    ) -> Plan {
        let mut args = vec![Vec::new(); 3];
        for (core, first, count) in self.cores.split(self.room * self.units) {
            let run = [first / self.units, first % self.units, count].map(Arg::Number);
            args[0].push((core, [read, &run].concat()));
            args[1].push((core, vec![run[2], Arg::Real(scale)]));
            args[2].push((core, [written, &run].concat()));
        }
        Plan { shape: Shape { cores: self.cores, buffers, kernels, semaphores: 0 }, args }
    }
}

/// Into how many units the heads of a segment are cut: as few as keep three quarters of the cores
/// busy, for heads that share a unit share the reading of K and V.
fn attend_units(q: &Matrix, store: &KvPages, segments: &Segments, cores: Cores) -> u32 {
    let heads = (q.shape().1 / store.head_dim()) as u32;
    units_of(segments.room(), heads, store.heads() as u32, cores.count())
}

fn units_of(segments: u32, heads: u32, kv_heads: u32, cores: u32) -> u32 {
    let group = heads / kv_heads;
    let cuts = (1..=group).filter(|cut| group.is_multiple_of(*cut));
    let enough = cuts.clone().find(|cut| 4 * segments * kv_heads * cut >= 3 * cores);
    kv_heads * enough.unwrap_or(group)
}

#[cfg(test)]
mod tests {
    use super::units_of;

    #[test]
    fn heads_share_a_unit_where_cores_are_few() {
        assert_eq!(units_of(1, 32, 2, 1), 2);
        assert_eq!(units_of(1, 32, 2, 13), 16);
        assert_eq!(units_of(1, 32, 2, 130), 32);
        assert_eq!(units_of(64, 32, 2, 130), 2);
        assert_eq!(units_of(8, 32, 2, 130), 16);
        assert_eq!(units_of(1, 4, 2, 2), 2);
    }
}
