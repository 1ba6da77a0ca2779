//! Rows of a matrix, gathered by index.

use muse_core::quant::tile::{SIDE, TileFormat};

use super::parts::{index_page, tile_buffer, writer};
use crate::cores::Cores;
use crate::matrix::{IndexBuffer, Matrix};
use crate::plan::{Arg, Plan, ProgramSpec};

const WRITER: &str = kernel!("indices.h", "tile_rows.h", "copy/writer.cpp");

/// Copies row `rows[i]` of `from` to row `first_row + i` and columns from `first_col` on of `to`,
/// for `count` rows; both are BF16. `first_col` is a multiple of 32. Nothing else of `to` changes.
pub fn copy(
    from: &Matrix,
    rows: &IndexBuffer,
    count: u32,
    to: &Matrix,
    (first_row, first_col): (usize, usize),
    cores: Cores,
) -> Plan {
    let bf16 = TileFormat::Bf16;
    assert_eq!((from.format(), to.format()), (bf16, bf16), "rows of BF16");
    let width = from.shape().1;
    assert!(first_col.is_multiple_of(SIDE), "column {first_col} begins a tile");
    // The kernel copies whole tiles of columns: the padding of a partial last tile would overwrite
    // columns of `to`.
    let fits = width.is_multiple_of(SIDE) || first_col + width == to.shape().1;
    assert!(fits && first_col + width <= to.shape().1, "columns of the destination");
    assert!(first_row + count as usize <= to.shape().0, "rows of the destination");
    rows.assert_capacity(count);
    let across = from.tile_shape().1;
    let cores = cores.for_work(across);
    let writer = writer(WRITER, vec![across, to.tile_shape().1, rows.buffer.page_bytes()], 3);
    let buffers = vec![tile_buffer(0, bf16, 1), index_page(1, rows)];
    let addresses = [&from.buffer, &rows.buffer, &to.buffer].map(Arg::address);
    let (top, left) = (first_row as u32, (first_col / SIDE) as u32);
    let args = cores.split(across).map(|(core, first, columns)| {
        let own = [count, top, left, first, columns].map(Arg::U32);
        (core, [&addresses[..], &own].concat())
    });
    let args = vec![args.collect()];
    Plan { spec: ProgramSpec { cores, buffers, kernels: vec![writer], semaphores: 0 }, args }
}
