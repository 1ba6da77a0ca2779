//! Writing K and V of new tokens into the KV cache.

use muse_core::quant::tile::{SIDE, TileFormat};

use super::parts::{index_page, tile_buffer, writer};
use crate::cores::Cores;
use crate::kv_cache::KvCache;
use crate::matrix::{IndexBuffer, Matrix};
use crate::plan::{Arg, Plan, ProgramSpec};

const WRITER: &str = kernel!("indices.h", "tile_rows.h", "write_kv/writer.cpp");

/// Writes row `i` of `k` and `v`, BF16, to slot `slots[i]` of `cache`. `slots` is padded to whole
/// tiles, see [`crate::slot_mapping`].
pub fn write_kv(
    k: &Matrix,
    v: &Matrix,
    slots: &IndexBuffer,
    cache: &KvCache,
    cores: Cores,
) -> Plan {
    let (bf16, width) = (TileFormat::Bf16, cache.heads() * cache.head_dim());
    assert_eq!((k.shape(), k.format()), (v.shape(), bf16), "K and V of the same shape, in BF16");
    assert_eq!((k.shape().1, v.format()), (width, bf16), "width of the rows of K and V");
    let (down, across) = k.tile_shape();
    slots.assert_capacity(SIDE as u32 * down);
    let cores = cores.for_work(down * across);
    let tiles = (cache.head_dim() / SIDE) as u32;
    let writer = writer(WRITER, vec![across, tiles, slots.buffer.page_bytes()], 5);
    let buffers = vec![tile_buffer(0, bf16, 1), tile_buffer(1, bf16, 1), index_page(2, slots)];
    let addresses =
        [&k.buffer, &v.buffer, &slots.buffer, &cache.k.buffer, &cache.v.buffer].map(Arg::address);
    let args = cores.split(down * across).map(|(core, first, count)| {
        (core, [&addresses[..], &[Arg::U32(first), Arg::U32(count)]].concat())
    });
    let args = vec![args.collect()];
    Plan { spec: ProgramSpec { cores, buffers, kernels: vec![writer], semaphores: 0 }, args }
}
