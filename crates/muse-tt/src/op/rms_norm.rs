//! RMS norm of rows and of their heads.

use muse_core::quant::tile::{SIDE, TileFormat};

use super::{OUT, compute, elementwise, pages, reader};
use crate::cores::Cores;
use crate::matrix::Matrix;
use crate::program::{Arg, Kernel, Plan, Shape};

const READER: &str = include_str!("../../kernels/rms_norm/reader.cpp");
const COMPUTE: &str = include_str!("../../kernels/rms_norm/compute.cpp");

/// `out = x / sqrt(mean(x²) + eps) · weight` by row; `weight` is `[1, cols]`, none means ones.
/// Columns are whole tiles, for what fills them up would count.
pub fn rms_norm(x: &Matrix, weight: Option<&Matrix>, eps: f32, out: &Matrix, cores: Cores) -> Plan {
    normed(x, weight, x.shape().1, eps, out, cores)
}

/// The same of every head of a row: heads of the weight's width lie side by side, in whole tiles.
/// `out` may be `x`.
pub fn head_norm(x: &Matrix, weight: &Matrix, eps: f32, out: &Matrix, cores: Cores) -> Plan {
    normed(x, Some(weight), weight.shape().1, eps, out, cores)
}

/// The norm of parts of rows that are `width` wide. The tiles of such a part lie one behind the
/// other, as do the parts of a row and the rows.
fn normed(
    x: &Matrix,
    weight: Option<&Matrix>,
    width: usize,
    eps: f32,
    out: &Matrix,
    cores: Cores,
) -> Plan {
    assert_eq!(x.shape(), out.shape(), "the result has the shape of what it is made from");
    assert!(x.shape().1.is_multiple_of(width), "{} columns are parts of {width}", x.shape().1);
    assert!(width.is_multiple_of(SIDE), "{width} columns are no whole tiles");
    assert!(weight.is_none_or(|weight| weight.shape() == (1, width)), "a weight a column");
    let across = (width / SIDE) as u32;
    let down = x.tile_shape().0 * (x.shape().1 / width) as u32;
    let cores = cores.for_work(down);
    let mut buffers = vec![
        pages(0, x.format(), across),
        pages(2, TileFormat::F32, 1),
        pages(3, TileFormat::Bf16, 1),
        pages(4, TileFormat::F32, 1),
        pages(OUT, out.format(), 2),
    ];
    let mut defines = Vec::new();
    if let Some(weight) = weight {
        buffers.extend([pages(1, weight.format(), across), pages(5, TileFormat::F32, 1)]);
        defines.push("MUSE_WEIGHTED");
    }
    let reader = Kernel {
        defines: defines.clone(),
        ..reader(READER, vec![across], 1 + usize::from(weight.is_some()))
    };
    let kernels = vec![reader, compute(COMPUTE, vec![across], defines), elementwise::run_writer()];
    let from = Arg::address(&x.buffer);
    let by = weight.map_or(Arg::Number(0), |weight| Arg::address(&weight.buffer));
    let to = Arg::address(&out.buffer);
    let numbers = [Arg::Real(1.0 / width as f32), Arg::Real(eps)];
    let mut args = vec![Vec::new(); 3];
    for (core, first, rows) in cores.split(down) {
        args[0].push((core, vec![from, by, Arg::Number(first), Arg::Number(rows)]));
        args[1].push((core, vec![Arg::Number(rows), numbers[0], numbers[1]]));
        args[2].push((core, vec![to, Arg::Number(first * across), Arg::Number(rows * across)]));
    }
    Plan { shape: Shape { cores, buffers, kernels, semaphores: 0 }, args }
}
