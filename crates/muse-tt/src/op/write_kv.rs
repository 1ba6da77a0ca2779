//! Rows of K and V into their pages.

use muse_core::quant::tile::{SIDE, TileFormat};

use super::{numbers, pages, writer};
use crate::cores::Cores;
use crate::matrix::{Ids, Matrix};
use crate::pages::KvPages;
use crate::program::{Arg, Plan, Shape};

const WRITER: &str = kernel!("numbers.h", "lines.h", "write_kv/writer.cpp");

/// Stores row `i` of `k` and `v`, BF16, at `slots[i]`, see [`crate::slots`]; there is a slot for
/// every row of tiles, also for those that fill them up.
pub fn write_kv(k: &Matrix, v: &Matrix, slots: &Ids, store: &KvPages, cores: Cores) -> Plan {
    let (bf16, width) = (TileFormat::Bf16, store.heads() * store.head_dim());
    assert_eq!((k.shape(), k.format()), (v.shape(), bf16), "K and V have one shape, of BF16");
    assert_eq!((k.shape().1, v.format()), (width, bf16), "width of K and V rows");
    let (down, across) = k.tile_shape();
    slots.assert_room(SIDE as u32 * down);
    let cores = cores.for_work(down * across);
    let tiles = (store.head_dim() / SIDE) as u32;
    let writer = writer(WRITER, vec![across, tiles, slots.buffer.page_bytes()], 5);
    let buffers = vec![pages(0, bf16, 1), pages(1, bf16, 1), numbers(2, slots)];
    let places =
        [&k.buffer, &v.buffer, &slots.buffer, &store.k.buffer, &store.v.buffer].map(Arg::address);
    let args = cores.split(down * across).map(|(core, first, count)| {
        (core, [&places[..], &[Arg::Number(first), Arg::Number(count)]].concat())
    });
    let args = vec![args.collect()];
    Plan { shape: Shape { cores, buffers, kernels: vec![writer], semaphores: 0 }, args }
}
