//! Products with weights.

use super::{OUT, compute, pages};
use crate::matrix::Matrix;
use crate::program::{Accessor, Arg, Cores, Kernel, Plan, Processor, Shape};

const READER: &str = include_str!("../../kernels/matmul/reader.cpp");
const COMPUTE: &str = include_str!("../../kernels/matmul/compute.cpp");
const WRITER: &str = include_str!("../../kernels/matmul/writer.cpp");

/// The most tiles of the weight that are asked for before any of them is waited for.
const MOST_AT_ONCE: u32 = 8;

/// `out = x · w`: `x` `[M, K]`, `w` `[K, N]` in any format, `out` `[M, N]`. A core holds a row of
/// tiles of `x`, so `K` is bounded by its memory.
pub fn matmul(x: &Matrix, w: &Matrix, out: &Matrix, cores: Cores) -> Plan {
    assert_eq!(x.shape().1, w.shape().0, "x has a column a row of w");
    assert_eq!(out.shape(), (x.shape().0, w.shape().1), "the result's shape");
    let ((down, deep), (_, across)) = (x.tile_shape(), w.tile_shape());
    let cores = cores.for_work(across);
    let block = (1..=MOST_AT_ONCE).rev().find(|block| deep.is_multiple_of(*block)).unwrap_or(1);
    let buffers = vec![
        pages(0, x.format(), deep),
        pages(1, w.format(), 2 * block),
        pages(OUT, out.format(), 2),
    ];
    let reader = Kernel {
        source: READER,
        processor: Processor::Reader,
        constants: vec![deep, across, down, block],
        accessors: vec![Accessor::Dram; 2],
        defines: Vec::new(),
    };
    let writer = Kernel {
        source: WRITER,
        processor: Processor::Writer,
        constants: vec![across, down],
        accessors: vec![Accessor::Dram],
        defines: Vec::new(),
    };
    let kernels = vec![reader, compute(COMPUTE, vec![deep, down, block], Vec::new()), writer];
    let [from, by, to] = [x, w, out].map(|matrix| Arg::address(&matrix.buffer));
    let mut args = vec![Vec::new(); 3];
    for (core, first, columns) in cores.split(across) {
        let (first, columns) = (Arg::Number(first), Arg::Number(columns));
        args[0].push((core, vec![from, by, first, columns]));
        args[1].push((core, vec![columns]));
        args[2].push((core, vec![to, first, columns]));
    }
    Plan { shape: Shape { cores, buffers, kernels }, args }
}
