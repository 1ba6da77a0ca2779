//! Operations value by value.

use super::{OUT, compute, pages, reader, writer};
use crate::cores::Cores;
use crate::matrix::Matrix;
use crate::program::{Arg, Kernel, Plan, Shape};

const READER: &str = kernel!("elementwise/reader.cpp");
const COMPUTE: &str = kernel!("pack.h", "elementwise/compute.cpp");
const WRITER: &str = kernel!("elementwise/writer.cpp");

/// An operation of two matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// `a + b`.
    Add,
    /// `a · sigmoid(b)`.
    Gate,
    /// `silu(a) · b`.
    SiluMul,
}

/// An operation of one matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    /// `a · factor`.
    Scale(f32),
    /// `cap · tanh(a · scale / cap)`.
    Cap {
        /// Factor on the values.
        scale: f32,
        /// What no value passes.
        cap: f32,
    },
}

/// `out = operation(a, b)`.
pub fn binary(operation: Binary, a: &Matrix, b: &Matrix, out: &Matrix, cores: Cores) -> Plan {
    assert_eq!(a.shape(), b.shape(), "both have one shape");
    let name = match operation {
        Binary::Add => "MUSE_ADD",
        Binary::Gate => "MUSE_GATE",
        Binary::SiluMul => "MUSE_SILU_MUL",
    };
    plan(a, Some(b), out, vec![name, "MUSE_BINARY"], [Arg::Number(0); 2], cores)
}

/// `out = operation(a)`.
pub fn unary(operation: Unary, a: &Matrix, out: &Matrix, cores: Cores) -> Plan {
    let (name, numbers) = match operation {
        Unary::Scale(factor) => ("MUSE_SCALE", [Arg::Real(factor), Arg::Number(0)]),
        Unary::Cap { scale, cap } => ("MUSE_CAP", [Arg::Real(scale / cap), Arg::Real(cap)]),
    };
    plan(a, None, out, vec![name], numbers, cores)
}

/// Writes a run of tiles: where to, the first one, how many.
pub(super) fn run_writer() -> Kernel {
    writer(WRITER, Vec::new(), 1)
}

fn plan(
    a: &Matrix,
    b: Option<&Matrix>,
    out: &Matrix,
    defines: Vec<&'static str>,
    numbers: [Arg; 2],
    cores: Cores,
) -> Plan {
    assert_eq!(a.shape(), out.shape(), "the result has the shape of what it is made from");
    let (down, across) = a.tile_shape();
    let cores = cores.for_work(down * across);
    let mut buffers = vec![pages(0, a.format(), 2), pages(OUT, out.format(), 2)];
    buffers.extend(b.map(|b| pages(1, b.format(), 2)));
    let inputs = 1 + usize::from(b.is_some());
    let reader = Kernel { defines: defines.clone(), ..reader(READER, Vec::new(), inputs) };
    let kernels = vec![reader, compute(COMPUTE, Vec::new(), defines), run_writer()];
    let at = Arg::address;
    let from: Vec<Arg> = [Some(a), b].into_iter().flatten().map(|m| at(&m.buffer)).collect();
    let to = at(&out.buffer);
    let mut args = vec![Vec::new(); 3];
    for (core, first, count) in cores.split(down * across) {
        let (first, count) = (Arg::Number(first), Arg::Number(count));
        args[0].push((core, [&from[..], &[first, count]].concat()));
        args[1].push((core, vec![count, numbers[0], numbers[1]]));
        args[2].push((core, vec![to, first, count]));
    }
    Plan { shape: Shape { cores, buffers, kernels, semaphores: 0 }, args }
}
