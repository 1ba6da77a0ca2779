//! Rows of a table by their numbers.

use muse_core::quant::tile::TileFormat;

use super::{numbers, pages, writer};
use crate::cores::Cores;
use crate::matrix::{Ids, Matrix, Table};
use crate::program::{Arg, Plan, Shape};

const WRITER: &str = kernel!("numbers.h", "embed/writer.cpp");

/// `out[i] = table[ids[i]]` for the first `rows` rows; the others of `out`, BF16, become zero.
pub fn embed(table: &Table, ids: &Ids, rows: u32, out: &Matrix, cores: Cores) -> Plan {
    assert_eq!((table.cols(), out.format()), (out.shape().1, TileFormat::Bf16), "rows of BF16");
    let (down, across) = out.tile_shape();
    assert!(rows <= 32 * down, "rows of the result");
    let cores = cores.for_work(down * across);
    let writer = writer(WRITER, vec![across, ids.buffer.page_bytes()], 3);
    let bf16 = TileFormat::Bf16;
    let buffers = vec![pages(0, bf16, 1), pages(1, bf16, 1), numbers(2, ids)];
    let [from, by, to] = [&table.buffer, &ids.buffer, &out.buffer].map(Arg::address);
    let args = cores.split(down * across).map(|(core, first, count)| {
        (core, vec![from, by, to, Arg::Number(rows), Arg::Number(first), Arg::Number(count)])
    });
    let args = vec![args.collect()];
    Plan { shape: Shape { cores, buffers, kernels: vec![writer], semaphores: 0 }, args }
}
