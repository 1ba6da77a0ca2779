//! The column of the largest value of every row.

use muse_core::quant::tile::TileFormat;

use super::parts::{index_page, reader, tile_buffer};
use crate::cores::Cores;
use crate::matrix::{IndexBuffer, Matrix};
use crate::plan::{Arg, Kernel, Plan, ProgramSpec};

const PARTIAL: &str = kernel!("argmax/partial.cpp");
const COMBINE: &str = kernel!("argmax/combine.cpp");

/// Words of a partial result of a row: see `kernels/argmax/partial.cpp`.
pub const ARGMAX_PARTIAL_WORDS: usize = 2;

/// `columns[i]` = the column of the largest value of row `i`, the first one of equal ones, for the
/// first `rows` rows of `logits`. The first plan finds the best of each core, the second one the
/// best of all. `partials` has a page for each core, with [`ARGMAX_PARTIAL_WORDS`] words per row.
pub fn argmax(
    logits: &Matrix,
    rows: u32,
    partials: &IndexBuffer,
    columns: &IndexBuffer,
    cores: Cores,
) -> [Plan; 2] {
    let (down, across) = logits.tile_shape();
    assert!(rows <= 32 * down, "{rows} rows of logits in {down} rows of tiles");
    partials.assert_capacity(ARGMAX_PARTIAL_WORDS as u32 * rows);
    columns.assert_capacity(rows);
    let cores = cores.for_work(across);
    assert!(partials.pages() >= cores.count(), "a page of partial results for each core");
    [find(logits, rows, partials, cores), combine(partials, rows, columns, cores.count())]
}

fn find(logits: &Matrix, rows: u32, partials: &IndexBuffer, cores: Cores) -> Plan {
    let (format, across) = (logits.format(), logits.tile_shape().1);
    let defines = match format {
        TileFormat::F32 => vec!["MUSE_F32"],
        TileFormat::Bf16 => Vec::new(),
        other => panic!("logits are BF16 or F32, not {}", other.name()),
    };
    let reader = Kernel {
        defines,
        ..reader(PARTIAL, vec![across, logits.shape().1 as u32, partials.buffer.page_bytes()], 2)
    };
    let buffers = vec![tile_buffer(0, format, 2), index_page(1, partials)];
    let [from, to] = [&logits.buffer, &partials.buffer].map(Arg::address);
    let runs = cores.split(across).zip(0..);
    let args = runs.map(|((core, first, count), index)| {
        (core, [&[from, to][..], &[rows, first, count, index].map(Arg::U32)].concat())
    });
    let args = vec![args.collect()];
    Plan { spec: ProgramSpec { cores, buffers, kernels: vec![reader], semaphores: 0 }, args }
}

fn combine(partials: &IndexBuffer, rows: u32, columns: &IndexBuffer, partial_count: u32) -> Plan {
    let cores = Cores::grid(1, 1);
    let reader = reader(
        COMBINE,
        vec![partial_count, partials.buffer.page_bytes(), columns.buffer.page_bytes()],
        2,
    );
    let all = partials.buffer.page_bytes() * partial_count;
    let tile = TileFormat::Bf16;
    let partial_tiles = all.div_ceil(tile.bytes() as u32);
    let buffers = vec![tile_buffer(0, tile, partial_tiles), index_page(1, columns)];
    let [from, to] = [&partials.buffer, &columns.buffer].map(Arg::address);
    let args = cores.split(1).map(|(core, _, _)| (core, vec![from, to, Arg::U32(rows)]));
    let args = vec![args.collect()];
    Plan { spec: ProgramSpec { cores, buffers, kernels: vec![reader], semaphores: 0 }, args }
}
