//! Attention over pages.

use muse_core::quant::tile::{SIDE, TileFormat};

use super::{OUT, compute, numbers, pages, reader, whole_pages, writer};
use crate::cores::Cores;
use crate::matrix::Matrix;
use crate::pages::KvPages;
use crate::program::{Arg, Plan, Shape};
use crate::segments::Segments;

const READER: &str = include_str!("../../kernels/attend/reader.cpp");
const COMPUTE: &str = include_str!("../../kernels/attend/compute.cpp");
const WRITER: &str =
    concat!(include_str!("../../kernels/lines.h"), include_str!("../../kernels/attend/writer.cpp"));

/// Softmax attention of `q` `[rows, heads · head_dim]`, BF16, over the pages of `store` into the same
/// rows of `out`; query head `j` reads K/V head `j / (heads / kv_heads)`. Which rows, pages and keys
/// is read from `segments` on the device. All segments that there is room for are gone through: those
/// not in use cost a core a glance.
pub fn attend(
    q: &Matrix,
    store: &KvPages,
    segments: &Segments,
    scale: f32,
    out: &Matrix,
    cores: Cores,
) -> Plan {
    let (bf16, dim) = (TileFormat::Bf16, store.head_dim());
    assert_eq!((q.shape(), q.format()), (out.shape(), out.format()), "queries and results");
    assert_eq!(q.format(), bf16, "queries of BF16");
    assert!(q.shape().1.is_multiple_of(dim * store.heads()), "heads of {dim} in equal groups");
    let heads = (q.shape().1 / dim) as u32;
    let units = attend_units(q, store, segments, cores);
    let cores = cores.for_work(segments.room() * units);
    let (tiles, each, kv_heads) = ((dim / SIDE) as u32, heads / units, store.heads() as u32);
    let numbers_bytes = segments.ids.buffer.page_bytes();
    let listed = numbers(5, &segments.ids);
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
    ];
    let kernels = vec![
        reader(READER, vec![tiles, each, units, kv_heads, numbers_bytes], 4),
        compute(COMPUTE, vec![tiles, each, listed.pages], Vec::new()),
        writer(WRITER, vec![each * tiles, units, numbers_bytes], 2),
    ];
    let [from, k, v, by, to] =
        [&q.buffer, &store.k, &store.v, &segments.ids.buffer, &out.buffer].map(Arg::address);
    let mut args = vec![Vec::new(); 3];
    for (core, first, count) in cores.split(segments.room() * units) {
        let run = [first / units, first % units, count].map(Arg::Number);
        args[0].push((core, [&[from, k, v, by][..], &run].concat()));
        args[1].push((core, vec![run[2], Arg::Real(scale)]));
        args[2].push((core, [&[to, by][..], &run].concat()));
    }
    Plan { shape: Shape { cores, buffers, kernels, semaphores: 0 }, args }
}

/// Into how many units the heads of a segment are cut: as few as keep all cores busy, for heads that
/// share a unit share the reading of K and V.
pub fn attend_units(q: &Matrix, store: &KvPages, segments: &Segments, cores: Cores) -> u32 {
    let heads = (q.shape().1 / store.head_dim()) as u32;
    units_of(segments.room(), heads, store.heads() as u32, cores.count())
}

fn units_of(segments: u32, heads: u32, kv_heads: u32, cores: u32) -> u32 {
    let group = heads / kv_heads;
    let cuts = (1..=group).filter(|cut| group.is_multiple_of(*cut));
    let enough = cuts.clone().find(|cut| segments * kv_heads * cut >= cores);
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
        assert_eq!(units_of(64, 32, 2, 130), 4);
        assert_eq!(units_of(65, 32, 2, 130), 2);
        assert_eq!(units_of(1, 4, 2, 2), 2);
    }
}
