//! Products with weights.

use muse_core::quant::tile::TileFormat;

use super::{OUT, compute, pages, reader, writer};
use crate::cores::Cores;
use crate::matrix::Matrix;
use crate::program::{Arg, Plan, Shape};
use crate::weight::Weight;

const READER: &str = kernel!("matmul/reader.cpp");
const COMPUTE: &str = kernel!("pack.h", "matmul/compute.cpp");
const WRITER: &str = kernel!("matmul/writer.cpp");

/// Where sums are kept.
const SUMS: u32 = 24;
/// Pages of the weight that a core has room for: two on their way, two to multiply with.
const RING: u32 = 4;
/// What circular buffers may take of a core's 1.5 MB: the rest is the host library's.
const ROOM: usize = 1_300_000;

/// `out = x · wᵀ`: `x` `[M, K]`, `w` `[N, K]` in any format, `out` `[M, N]`. The weight is read
/// once for every `height` rows of tiles of `x`, and `x` once.
pub fn matmul(x: &Matrix, w: &Weight, out: &Matrix, cores: Cores) -> Plan {
    let layout = w.layout();
    assert_eq!(x.shape().1, layout.cols, "x has a column for each of w");
    assert_eq!(out.shape(), (x.shape().0, layout.rows), "the result's shape");
    let (down, across) = out.tile_shape();
    let cores = cores.rectangle_for_work(across);
    let (depth, steps) = (layout.depth() as u32, layout.steps() as u32);
    let (width, height) = (across.div_ceil(cores.count()), height(x, w, cores));
    let buffers = vec![
        pages(0, x.format(), 2 * height * depth),
        pages(1, layout.format, RING * depth),
        pages(SUMS, TileFormat::F32, height * width),
        pages(OUT, out.format(), 2),
    ];
    let turning = layout.turning() as u32;
    let kernels = vec![
        reader(READER, vec![depth, steps, turning, RING], 1),
        compute(COMPUTE, vec![depth, steps, height, width], Vec::new()),
        writer(WRITER, vec![depth, steps, height, across], 2),
    ];
    let [from, by, to] = [&x.buffer, &w.buffer, &out.buffer].map(Arg::address);
    let corner = |core| {
        let (x, y) = x.device().network(core);
        [Arg::Number(x), Arg::Number(y)]
    };
    let rounds = down.div_ceil(height);
    let mut args = vec![Vec::new(); 3];
    let (mut leads, others) = (1, cores.count() - 1);
    let (start, end) = (corner(cores.first()), corner(cores.last()));
    for (core, first, columns) in cores.split(across) {
        let numbers = |numbers: &[u32]| numbers.iter().map(|n| Arg::Number(*n)).collect::<Vec<_>>();
        let turn = first * turning % steps;
        args[0].push((core, [vec![by], numbers(&[first, columns, rounds, turn])].concat()));
        args[1].push((core, numbers(&[columns, down])));
        let own = numbers(&[first, columns, down, leads]);
        let all = [&start[..], &end, &[Arg::Number(others)]].concat();
        args[2].push((core, [vec![from, to], own, all].concat()));
        leads = 0;
    }
    Plan { shape: Shape { cores, buffers, kernels, semaphores: 2 }, args }
}

/// Rows of tiles of `x` for which a product on these cores keeps its sums at once: as many as
/// there is room for.
fn height(x: &Matrix, w: &Weight, cores: Cores) -> u32 {
    let (layout, down) = (w.layout(), x.tile_shape().0);
    let width = layout
        .columns()
        .div_ceil(cores.rectangle_for_work(layout.columns() as u32).count() as usize);
    let fixed = RING as usize * layout.page_bytes() + 2 * TileFormat::F32.bytes();
    let row = 2 * layout.depth() * x.format().bytes() + width * TileFormat::F32.bytes();
    let most = ROOM.saturating_sub(fixed) / row;
    assert!(most > 0, "a core's memory has no room for the sums of {width} columns of tiles");
    down.min(most as u32)
}
