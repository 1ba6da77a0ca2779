//! Products with weights.

use muse_core::quant::tile::TileFormat;

use super::parts::{OUT, compute, reader, tile_buffer, writer};
use crate::cores::Cores;
use crate::matrix::Matrix;
use crate::plan::{Arg, Plan, ProgramSpec};
use crate::weight::Weight;

const READER: &str = kernel!("matmul/reader.cpp");
const COMPUTE: &str = kernel!("pack.h", "matmul/compute.cpp");
const WRITER: &str = kernel!("matmul/writer.cpp");

/// The circular buffer of the sums.
const SUMS: u32 = 24;
/// Pages of the weight that a core holds: two that are being read, two to multiply with.
const RING: u32 = 4;
/// Bytes of the 1.5 MB of a core that circular buffers may use: the host library needs the rest.
const MAX_BUFFER_BYTES: usize = 1_300_000;

/// `out = x · wᵀ`: `x` `[M, K]`, `w` `[N, K]` in any format, `out` `[M, N]`. `x` is read once, and
/// the weight once for every round of as many rows of tiles as a core can keep sums of.
pub fn matmul(x: &Matrix, w: &Weight, out: &Matrix, cores: Cores) -> Plan {
    let layout = w.layout();
    assert_eq!(x.shape().1, layout.cols, "x has a column for each of w");
    assert_eq!(out.shape(), (x.shape().0, layout.rows), "the result's shape");
    let (down, across) = out.tile_shape();
    let cores = cores.rectangle_for_work(across);
    let (depth, steps) = (layout.depth() as u32, layout.steps() as u32);
    let (width, height) = (across.div_ceil(cores.count()), height(x, w, cores));
    let buffers = vec![
        tile_buffer(0, x.format(), 2 * height * depth),
        tile_buffer(1, layout.format, RING * depth),
        tile_buffer(SUMS, TileFormat::F32, height * width),
        tile_buffer(OUT, out.format(), 2),
    ];
    let stagger = layout.stagger() as u32;
    let kernels = vec![
        reader(READER, vec![depth, steps, stagger, RING], 1),
        compute(COMPUTE, vec![depth, steps, height, width], Vec::new()),
        writer(WRITER, vec![depth, steps, height, across], 2),
    ];
    let [from, weight, to] = [&x.buffer, &w.buffer, &out.buffer].map(Arg::address);
    let corner = |core| {
        let (x, y) = x.device().network(core);
        [Arg::U32(x), Arg::U32(y)]
    };
    let rounds = down.div_ceil(height);
    let mut args = vec![Vec::new(); 3];
    let (mut is_sender, receivers) = (1, cores.count() - 1);
    let (start, end) = (corner(cores.first()), corner(cores.last()));
    for (core, first, columns) in cores.split(across) {
        let args_of = |values: &[u32]| values.iter().copied().map(Arg::U32).collect::<Vec<_>>();
        let first_page = first * stagger % steps;
        args[0]
            .push((core, [vec![weight], args_of(&[first, columns, rounds, first_page])].concat()));
        args[1].push((core, args_of(&[columns, down])));
        let own = args_of(&[first, columns, down, is_sender]);
        let rectangle = [&start[..], &end, &[Arg::U32(receivers)]].concat();
        args[2].push((core, [vec![from, to], own, rectangle].concat()));
        is_sender = 0;
    }
    Plan { spec: ProgramSpec { cores, buffers, kernels, semaphores: 2 }, args }
}

/// Rows of tiles of `x` whose sums a core keeps at the same time: as many as fit into its memory.
fn height(x: &Matrix, w: &Weight, cores: Cores) -> u32 {
    let (layout, down) = (w.layout(), x.tile_shape().0);
    let width = layout
        .columns()
        .div_ceil(cores.rectangle_for_work(layout.columns() as u32).count() as usize);
    let fixed = RING as usize * layout.page_bytes() + 2 * TileFormat::F32.bytes();
    let row = 2 * layout.depth() * x.format().bytes() + width * TileFormat::F32.bytes();
    let max = MAX_BUFFER_BYTES.saturating_sub(fixed) / row;
    assert!(max > 0, "the sums of {width} columns of tiles do not fit into a core");
    down.min(max as u32)
}
