//! Embedding: rows of a table, gathered by token id.

use muse_core::quant::tile::TileFormat;

use super::parts::{index_page, tile_buffer, writer};
use crate::cores::Cores;
use crate::matrix::{EmbeddingTable, IndexBuffer, Matrix};
use crate::plan::{Arg, Plan, ProgramSpec};

const WRITER: &str = kernel!("indices.h", "embed/writer.cpp");

/// `out[i] = table[ids[i]]` for the first `rows` rows; the other rows of `out`, BF16, become zero.
pub fn embed(
    table: &EmbeddingTable,
    ids: &IndexBuffer,
    rows: u32,
    out: &Matrix,
    cores: Cores,
) -> Plan {
    assert_eq!((table.cols(), out.format()), (out.shape().1, TileFormat::Bf16), "rows of BF16");
    let (down, across) = out.tile_shape();
    assert!(rows <= 32 * down, "{rows} rows of a result of {down} rows of tiles");
    let cores = cores.for_work(down * across);
    let writer = writer(WRITER, vec![across, ids.buffer.page_bytes()], 3);
    let bf16 = TileFormat::Bf16;
    let buffers = vec![tile_buffer(0, bf16, 1), tile_buffer(1, bf16, 1), index_page(2, ids)];
    let [from, indices, to] = [&table.buffer, &ids.buffer, &out.buffer].map(Arg::address);
    let args = cores.split(down * across).map(|(core, first, count)| {
        (core, vec![from, indices, to, Arg::U32(rows), Arg::U32(first), Arg::U32(count)])
    });
    let args = vec![args.collect()];
    Plan { spec: ProgramSpec { cores, buffers, kernels: vec![writer], semaphores: 0 }, args }
}
