//! Rows of a matrix, chosen by their numbers.

use muse_core::quant::tile::{SIDE, TileFormat};

use super::{numbers, pages, writer};
use crate::cores::Cores;
use crate::matrix::{Ids, Matrix};
use crate::program::{Arg, Plan, Shape};

const WRITER: &str = kernel!("numbers.h", "lines.h", "copy/writer.cpp");

/// Copies row `rows[i]` of `from` to row `first_row + i` of `to`, for `count` rows, from column
/// `first_col`, a whole number of tiles, on; both BF16. Nothing else of `to` changes.
pub fn copy(
    from: &Matrix,
    rows: &Ids,
    count: u32,
    to: &Matrix,
    (first_row, first_col): (usize, usize),
    cores: Cores,
) -> Plan {
    let bf16 = TileFormat::Bf16;
    assert_eq!((from.format(), to.format()), (bf16, bf16), "rows of BF16");
    let width = from.shape().1;
    assert!(first_col.is_multiple_of(SIDE), "column {first_col} begins a tile");
    // A last tile that is not full would bring its filling along.
    let fits = width.is_multiple_of(SIDE) || first_col + width == to.shape().1;
    assert!(fits && first_col + width <= to.shape().1, "columns of the destination");
    assert!(first_row + count as usize <= to.shape().0, "rows of the destination");
    rows.assert_room(count);
    let across = from.tile_shape().1;
    let cores = cores.for_work(across);
    let writer = writer(WRITER, vec![across, to.tile_shape().1, rows.buffer.page_bytes()], 3);
    let buffers = vec![pages(0, bf16, 1), numbers(1, rows)];
    let places = [&from.buffer, &rows.buffer, &to.buffer].map(Arg::address);
    let (top, left) = (first_row as u32, (first_col / SIDE) as u32);
    let args = cores.split(across).map(|(core, first, columns)| {
        let numbers = [count, top, left, first, columns].map(Arg::Number);
        (core, [&places[..], &numbers].concat())
    });
    let args = vec![args.collect()];
    Plan { shape: Shape { cores, buffers, kernels: vec![writer], semaphores: 0 }, args }
}
