//! The largest of every row.

use muse_core::quant::tile::TileFormat;

use super::{numbers, pages, reader};
use crate::cores::Cores;
use crate::matrix::{Ids, Matrix};
use crate::program::{Arg, Kernel, Plan, Shape};

const PARTIAL: &str = kernel!("argmax/partial.cpp");
const COMBINE: &str = kernel!("argmax/combine.cpp");

/// Numbers that a core leaves for each row.
pub const PARTIAL_NUMBERS: usize = 2;

/// `columns[i]` = the column of the largest value of row `i`, of equal ones the first, for the first
/// `rows` rows: what every core finds, then the best of them. `partials` has a page a core with room
/// for [`PARTIAL_NUMBERS`] a row.
pub fn argmax(
    scores: &Matrix,
    rows: u32,
    partials: &Ids,
    columns: &Ids,
    cores: Cores,
) -> [Plan; 2] {
    let (down, across) = scores.tile_shape();
    assert!(rows <= 32 * down, "rows of the scores");
    partials.assert_room(PARTIAL_NUMBERS as u32 * rows);
    columns.assert_room(rows);
    let cores = cores.for_work(across);
    assert!(partials.pages() >= cores.count(), "a page a core");
    [find(scores, rows, partials, cores), combine(partials, rows, columns, cores.count())]
}

fn find(scores: &Matrix, rows: u32, partials: &Ids, cores: Cores) -> Plan {
    let (format, across) = (scores.format(), scores.tile_shape().1);
    let defines = match format {
        TileFormat::F32 => vec!["MUSE_WIDE"],
        TileFormat::Bf16 => Vec::new(),
        other => panic!("scores are BF16 or F32, not {}", other.name()),
    };
    let reader = Kernel {
        defines,
        ..reader(PARTIAL, vec![across, scores.shape().1 as u32, partials.buffer.page_bytes()], 2)
    };
    let buffers = vec![pages(0, format, 2), numbers(1, partials)];
    let [from, to] = [&scores.buffer, &partials.buffer].map(Arg::address);
    let runs = cores.split(across).zip(0..);
    let args = runs.map(|((core, first, count), index)| {
        (core, [&[from, to][..], &[rows, first, count, index].map(Arg::Number)].concat())
    });
    let args = vec![args.collect()];
    Plan { shape: Shape { cores, buffers, kernels: vec![reader], semaphores: 0 }, args }
}

fn combine(partials: &Ids, rows: u32, columns: &Ids, found: u32) -> Plan {
    let cores = Cores::grid(1, 1);
    let reader =
        reader(COMBINE, vec![found, partials.buffer.page_bytes(), columns.buffer.page_bytes()], 2);
    let all = partials.buffer.page_bytes() * found;
    let tile = TileFormat::Bf16;
    let buffers = vec![pages(0, tile, all.div_ceil(tile.bytes() as u32)), numbers(1, columns)];
    let [from, to] = [&partials.buffer, &columns.buffer].map(Arg::address);
    let args = cores.split(1).map(|(core, _, _)| (core, vec![from, to, Arg::Number(rows)]));
    let args = vec![args.collect()];
    Plan { shape: Shape { cores, buffers, kernels: vec![reader], semaphores: 0 }, args }
}
