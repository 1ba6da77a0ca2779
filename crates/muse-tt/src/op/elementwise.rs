//! Elementwise operations.

use super::parts::{OUT, compute, reader, tile_buffer, tile_writer};
use crate::cores::Cores;
use crate::matrix::Matrix;
use crate::plan::{Arg, Kernel, Plan, ProgramSpec};

const READER: &str = kernel!("elementwise/reader.cpp");
const COMPUTE: &str = kernel!("pack.h", "elementwise/compute.cpp");

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
    /// `softcap · tanh(a · scale / softcap)`.
    Softcap {
        /// Factor of the values.
        scale: f32,
        /// Bound of the results.
        softcap: f32,
    },
}

/// `out = operation(a, b)`.
pub fn binary(operation: Binary, a: &Matrix, b: &Matrix, out: &Matrix, cores: Cores) -> Plan {
    assert_eq!(a.shape(), b.shape(), "operands of the same shape");
    let name = match operation {
        Binary::Add => "MUSE_ADD",
        Binary::Gate => "MUSE_GATE",
        Binary::SiluMul => "MUSE_SILU_MUL",
    };
    plan(a, Some(b), out, vec![name, "MUSE_BINARY"], [Arg::U32(0); 2], cores)
}

/// `out = operation(a)`.
pub fn unary(operation: Unary, a: &Matrix, out: &Matrix, cores: Cores) -> Plan {
    let (name, constants) = match operation {
        Unary::Scale(factor) => ("MUSE_SCALE", [Arg::F32(factor), Arg::U32(0)]),
        Unary::Softcap { scale, softcap } => {
            ("MUSE_SOFTCAP", [Arg::F32(scale / softcap), Arg::F32(softcap)])
        }
    };
    plan(a, None, out, vec![name], constants, cores)
}

fn plan(
    a: &Matrix,
    b: Option<&Matrix>,
    out: &Matrix,
    defines: Vec<&'static str>,
    constants: [Arg; 2],
    cores: Cores,
) -> Plan {
    assert_eq!(a.shape(), out.shape(), "the result has the shape of the operands");
    let (down, across) = a.tile_shape();
    let cores = cores.for_work(down * across);
    let mut buffers = vec![tile_buffer(0, a.format(), 2), tile_buffer(OUT, out.format(), 2)];
    buffers.extend(b.map(|b| tile_buffer(1, b.format(), 2)));
    let inputs = 1 + usize::from(b.is_some());
    let reader = Kernel { defines: defines.clone(), ..reader(READER, Vec::new(), inputs) };
    let kernels = vec![reader, compute(COMPUTE, Vec::new(), defines), tile_writer()];
    let at = Arg::address;
    let from: Vec<Arg> = [Some(a), b].into_iter().flatten().map(|m| at(&m.buffer)).collect();
    let to = at(&out.buffer);
    let mut args = vec![Vec::new(); 3];
    for (core, first, count) in cores.split(down * across) {
        let (first, count) = (Arg::U32(first), Arg::U32(count));
        args[0].push((core, [&from[..], &[first, count]].concat()));
        args[1].push((core, vec![count, constants[0], constants[1]]));
        args[2].push((core, vec![to, first, count]));
    }
    Plan { spec: ProgramSpec { cores, buffers, kernels, semaphores: 0 }, args }
}
