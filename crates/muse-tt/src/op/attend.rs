//! Attention over the KV blocks of sequences.

use muse_core::Result;
use muse_core::quant::tile::{SIDE, TileFormat};

use super::parts::{OUT, compute, f32_tile_buffer, index_page, reader, tile_buffer, writer};
use crate::cores::Cores;
use crate::kv_cache::KvCache;
use crate::matrix::Matrix;
use crate::plan::{Arg, CircularBuffer, Kernel, Plan, ProgramSpec};
use crate::segments::Segments;

const READER: &str = kernel!("segment.h", "attend/reader.cpp");
const COMPUTE: &str = kernel!("segment.h", "pack.h", "divide.h", "attend/compute.cpp");
const WRITER: &str = kernel!("segment.h", "tile_rows.h", "attend/writer.cpp");
const COMBINE_READER: &str = kernel!("segment.h", "combine/reader.cpp");
const COMBINE: &str = kernel!("segment.h", "pack.h", "divide.h", "combine/compute.cpp");

/// KV blocks per split of a segment: so many that the partial results have a twentieth of the bytes
/// of the blocks, and that windows of the published model are rarely split.
pub const KV_SPLIT_BLOCKS: usize = 256;

/// Space for the partial results of KV splits: sums, sum of weights and maximum score of every
/// head.
///
/// # Errors
/// [`muse_core::Error::Exhausted`] when the device has not enough memory.
pub fn attend_partials(q: &Matrix, cache: &KvCache, segments: &Segments) -> Result<Matrix> {
    let (dim, capacity) = (cache.head_dim(), segments.capacity() as usize);
    let rows = SIDE * capacity * (q.shape().1 / dim);
    Matrix::new(q.device(), TileFormat::F32, rows, dim + 2 * SIDE)
}

/// Softmax attention of `q` `[rows, heads · head_dim]`, BF16, over KV blocks of `cache` into the
/// same rows of `out`; query head `j` reads K/V head `j / (heads / kv_heads)`. Rows, KV blocks and
/// visible keys are read from `segments` on the device, up to its capacity; a segment that is not
/// in use costs the read of its page. The second plan combines KV splits and does nothing when
/// there are none.
pub fn attend(
    q: &Matrix,
    cache: &KvCache,
    segments: &Segments,
    partials: &Matrix,
    scale: f32,
    out: &Matrix,
    cores: Cores,
) -> [Plan; 2] {
    let (bf16, dim, capacity) = (TileFormat::Bf16, cache.head_dim(), segments.capacity());
    assert_eq!((q.shape(), q.format()), (out.shape(), out.format()), "queries and results");
    assert_eq!(q.format(), bf16, "queries of BF16");
    assert!(q.shape().1.is_multiple_of(dim * cache.heads()), "heads of {dim} in equal groups");
    let units = attend_units(q, cache, segments, cores);
    let (heads, head_tiles) = ((q.shape().1 / dim) as u32, (dim / SIDE) as u32);
    let expected = (TileFormat::F32, (capacity * heads, head_tiles + 2));
    assert_eq!((partials.format(), partials.tile_shape()), expected, "space for partial results");
    let work = Work {
        capacity,
        units,
        heads: heads / units,
        head_tiles,
        segment_bytes: segments.buffer.buffer.page_bytes(),
        segment_page: index_page(5, &segments.buffer),
        cores: cores.for_work(capacity * units),
    };
    let outputs = Outputs {
        segments: Arg::address(&segments.buffer.buffer),
        partials: Arg::address(&partials.buffer),
        out: Arg::address(&out.buffer),
    };
    let inputs = [q, &cache.k, &cache.v].map(|matrix| Arg::address(&matrix.buffer));
    let kv_heads = cache.heads() as u32;
    [work.attend(kv_heads, inputs, &outputs, scale), work.combine(&outputs, scale)]
}

/// How the work is divided.
struct Work {
    /// Segments that there is space for.
    capacity: u32,
    /// Units of work of a segment.
    units: u32,
    /// Query heads of a unit.
    heads: u32,
    /// Tiles of a head.
    head_tiles: u32,
    /// Bytes of a segment, and the circular buffer that holds one.
    segment_bytes: u32,
    segment_page: CircularBuffer,
    cores: Cores,
}

/// Addresses of the buffers that both plans use.
struct Outputs {
    segments: Arg,
    partials: Arg,
    out: Arg,
}

impl Work {
    fn attend(&self, kv_heads: u32, inputs: [Arg; 3], outputs: &Outputs, scale: f32) -> Plan {
        let &Self { units, heads, head_tiles, segment_bytes, segment_page, .. } = self;
        let bf16 = TileFormat::Bf16;
        let buffers = vec![
            tile_buffer(0, bf16, heads * head_tiles),
            tile_buffer(1, bf16, 4 * head_tiles),
            tile_buffer(2, bf16, 4 * head_tiles),
            tile_buffer(3, bf16, 4),
            tile_buffer(4, bf16, 4),
            segment_page,
            tile_buffer(6, bf16, 2),
            tile_buffer(7, bf16, 1),
            tile_buffer(8, bf16, heads + 1),
            tile_buffer(9, bf16, 2),
            f32_tile_buffer(10, 1),
            f32_tile_buffer(11, (heads + 1) * (head_tiles + 1)),
            tile_buffer(12, bf16, 1),
            f32_tile_buffer(13, 2),
            tile_buffer(OUT, bf16, 2),
            tile_buffer(17, TileFormat::F32, 2),
        ];
        let partial_tiles = heads * (head_tiles + 2);
        let kernels = vec![
            reader(READER, vec![head_tiles, heads, units, kv_heads, segment_bytes], 4),
            compute(COMPUTE, vec![head_tiles, heads, segment_page.pages], Vec::new()),
            writer(WRITER, vec![heads * head_tiles, units, segment_bytes, partial_tiles], 3),
        ];
        let [q, k, v] = inputs;
        let written = [outputs.out, outputs.segments, outputs.partials];
        self.plan(buffers, kernels, &[q, k, v, outputs.segments], &written, scale)
    }

    fn combine(&self, outputs: &Outputs, scale: f32) -> Plan {
        let &Self { units, heads, head_tiles, segment_bytes, segment_page, .. } = self;
        let buffers = vec![
            f32_tile_buffer(0, 2 * (head_tiles + 1)),
            f32_tile_buffer(1, 2),
            f32_tile_buffer(2, 2),
            f32_tile_buffer(3, 2),
            f32_tile_buffer(4, 2 * (head_tiles + 1)),
            segment_page,
            tile_buffer(12, TileFormat::Bf16, 1),
            tile_buffer(OUT, TileFormat::Bf16, 2),
        ];
        let writer = writer(WRITER, vec![heads * head_tiles, units, segment_bytes, 0], 2);
        let kernels = vec![
            reader(COMBINE_READER, vec![head_tiles, heads, units, segment_bytes], 2),
            compute(COMBINE, vec![head_tiles, heads, segment_page.pages], Vec::new()),
            Kernel { defines: vec!["MUSE_COMBINE"], ..writer },
        ];
        let (read, written) =
            ([outputs.partials, outputs.segments], [outputs.out, outputs.segments]);
        self.plan(buffers, kernels, &read, &written, scale)
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
        for (core, first, count) in self.cores.split(self.capacity * self.units) {
            let run = [first / self.units, first % self.units, count].map(Arg::U32);
            args[0].push((core, [read, &run].concat()));
            args[1].push((core, vec![run[2], Arg::F32(scale)]));
            args[2].push((core, [written, &run].concat()));
        }
        Plan { spec: ProgramSpec { cores: self.cores, buffers, kernels, semaphores: 0 }, args }
    }
}

/// Into how many units the heads of a segment are divided: the smallest number that keeps three
/// quarters of the cores busy, because the heads of a unit share the reads of K and V.
fn attend_units(q: &Matrix, cache: &KvCache, segments: &Segments, cores: Cores) -> u32 {
    let heads = (q.shape().1 / cache.head_dim()) as u32;
    units_of(segments.capacity(), heads, cache.heads() as u32, cores.count())
}

fn units_of(segments: u32, heads: u32, kv_heads: u32, cores: u32) -> u32 {
    let group = heads / kv_heads;
    let parts = (1..=group).filter(|parts| group.is_multiple_of(*parts));
    let enough = parts.clone().find(|parts| 4 * segments * kv_heads * parts >= 3 * cores);
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
