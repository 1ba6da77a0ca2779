//! The cases: every kernel in every configuration, and what it must come to. What is wanted is
//! computed by the CPU backend from the values that the device was given.

use std::fmt;

use muse_core::Result;
use muse_core::contract::{Backend, Token, WeightView};
use muse_core::quant::Format;
use muse_core::quant::tile::TileFormat;
use muse_cpu::{Buf, Cpu, CpuOptions};
use muse_testkit::{correlation, max_abs_diff};
use muse_tt::op::{self, Binary, Unary};
use muse_tt::{Cores, Device, Ids, Matrix, Programs, Table};

use crate::lane::Lane;

/// What sums in f32 and results in BF16 must come to.
const NEAR: f64 = 0.9999;
/// How far off a value may be, in parts of the largest: correlation does not see a factor or an
/// offset that all values have.
const FAR: f32 = 0.03;

type Run = Box<dyn Fn(&mut Bench) -> Result<Outcome>>;

/// A kernel in a configuration.
pub struct Case {
    /// Operation, size and cores.
    pub name: String,
    /// Whether it is one of those that CI runs in a slow simulator.
    pub quick: bool,
    /// Whether it needs formats that not every simulator has.
    blocks: bool,
    run: Run,
}

/// What a case runs on.
pub struct Bench {
    programs: Programs,
    cpu: Cpu,
}

/// How near a result is.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Correlation with what is wanted.
    pub correlation: f64,
    /// The largest absolute difference.
    pub error: f32,
    /// The largest absolute value that is wanted.
    pub largest: f32,
    exact: bool,
}

impl Outcome {
    /// Whether it is near enough.
    pub fn passes(&self) -> bool {
        match self.exact {
            true => self.error == 0.0,
            false => self.correlation >= NEAR && self.error <= FAR * self.largest,
        }
    }

    fn near(got: &[f32], want: &[f32]) -> Self {
        let (correlation, error) = (correlation(got, want), max_abs_diff(got, want));
        let largest = want.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
        Self { correlation, error, largest, exact: false }
    }

    fn exact(got: &[f32], want: &[f32]) -> Self {
        Self { exact: true, ..Self::near(got, want) }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = if self.error == 0.0 { "exact" } else { "" };
        let Self { correlation, error, largest, .. } = self;
        write!(f, "PCC {correlation:.6}  max error {error:.2e} of {largest:.2e}  {exact}")
    }
}

impl Case {
    /// Whether a lane can run it.
    pub fn runs_in(&self, lane: Lane) -> bool {
        lane != Lane::Wolfpine || !self.blocks
    }

    /// Runs it on a device.
    ///
    /// # Errors
    /// Those of the device.
    pub fn run(&self, device: &Device) -> Result<Outcome> {
        let cpu = Cpu::new(CpuOptions { threads: Some(1) })?.exact();
        (self.run)(&mut Bench { programs: Programs::new(device), cpu })
    }
}

/// Which cores a case runs on: one, a row, or all that there are.
#[derive(Clone, Copy, Debug)]
enum On {
    One,
    Row,
    Grid,
}

impl On {
    const ALL: [Self; 3] = [Self::One, Self::Row, Self::Grid];

    fn cores(self, bench: &Bench) -> Cores {
        let (columns, rows) = bench.programs.device().grid();
        match self {
            Self::One => Cores::grid(1, 1),
            Self::Row => Cores::grid(columns, 1),
            Self::Grid => Cores::grid(columns, rows),
        }
    }
}

/// All cases.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for on in On::ALL {
        for (rows, cols) in [(32, 32), (32, 128), (33, 96)] {
            let quick = matches!((on, rows, cols), (On::One, 32, 32));
            for (name, operation) in
                [("add", Binary::Add), ("gate", Binary::Gate), ("silu_mul", Binary::SiluMul)]
            {
                cases.push(case(name, rows, cols, on, quick, false, move |bench| {
                    bench.binary(operation, rows, cols, on)
                }));
            }
            for (name, operation) in
                [("scale", Unary::Scale(0.196)), ("cap", Unary::Cap { scale: 0.196, cap: 20.0 })]
            {
                cases.push(case(name, rows, cols, on, quick, false, move |bench| {
                    bench.unary(operation, rows, cols, on)
                }));
            }
            for (name, weighted) in [("rms_norm", true), ("rms_norm_plain", false)] {
                let quick = quick && weighted;
                cases.push(case(name, rows, cols, on, quick, false, move |bench| {
                    bench.rms_norm(rows, cols, weighted, on)
                }));
            }
            cases.push(case("embed", rows, cols, on, quick, false, move |bench| {
                bench.embed(rows, cols, on)
            }));
        }
        cases.extend(matmuls(on));
    }
    cases
}

/// Products: rows, depth, columns.
fn matmuls(on: On) -> impl Iterator<Item = Case> {
    let small = [(32, 32, 32), (32, 64, 128), (64, 128, 96)];
    let large = [(32, 256, 256), (32, 1024, 512), (32, 6656, 512)];
    let bf16 = small.map(|shape| (shape, TileFormat::Bf16));
    let blocks = [TileFormat::Bf16, TileFormat::Bfp8, TileFormat::Bfp4]
        .map(|format| large.map(|shape| (shape, format)));
    bf16.into_iter().chain(blocks.into_iter().flatten()).map(move |((rows, deep, cols), format)| {
        let quick = deep == 32 && matches!(on, On::One);
        let name = format!("matmul_{}/{deep}", format.name().to_lowercase());
        case(&name, rows, cols, on, quick, deep > 128, move |bench| {
            bench.matmul(rows, deep, cols, format, on)
        })
    })
}

fn case(
    name: &str,
    rows: usize,
    cols: usize,
    on: On,
    quick: bool,
    blocks: bool,
    run: impl Fn(&mut Bench) -> Result<Outcome> + 'static,
) -> Case {
    let on = format!("{on:?}").to_lowercase();
    Case { name: format!("{name}/{rows}x{cols}/{on}"), quick, blocks, run: Box::new(run) }
}

/// Values as a model has them, the same every time, in BF16.
fn values(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        // Xorshift: good enough to have no pattern that a wrong layout could hide in.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as f32 / u32::MAX as f32 - 0.5
    };
    let normal = (0..count).map(|_| (next() + next() + next() + next()) * 2.0);
    normal.map(|x| half::bf16::from_f32(x).to_f32()).collect()
}

impl Bench {
    fn on_device(&self, values: &[f32], cols: usize) -> Result<Matrix> {
        Matrix::of(self.programs.device(), TileFormat::Bf16, values, cols)
    }

    fn fresh(&self, rows: usize, cols: usize) -> Result<Matrix> {
        // Not zeros, so that what is not written shows.
        self.on_device(&vec![-77.0; rows * cols], cols)
    }

    fn on_cpu(&self, values: &[f32], cols: usize) -> Result<Buf> {
        let mut buf = self.cpu.alloc(values.len() / cols, cols)?;
        self.cpu.write(&mut buf, 0, values)?;
        Ok(buf)
    }

    fn of_cpu(&self, buf: &Buf, count: usize) -> Result<Vec<f32>> {
        let mut out = vec![0.0; count];
        self.cpu.read(buf, 0, &mut out)?;
        Ok(out)
    }

    fn binary(&mut self, operation: Binary, rows: usize, cols: usize, on: On) -> Result<Outcome> {
        let (a, b) = (values(rows * cols, 1), values(rows * cols, 2));
        let out = self.fresh(rows, cols)?;
        let (x, y) = (self.on_device(&a, cols)?, self.on_device(&b, cols)?);
        let plan = op::binary(operation, &x, &y, &out, on.cores(self));
        self.programs.run(&plan, true)?;
        let (mut want, other) = (self.on_cpu(&a, cols)?, self.on_cpu(&b, cols)?);
        match operation {
            Binary::Add => self.cpu.add(&mut want, rows, &other)?,
            Binary::Gate => self.cpu.gate(&mut want, rows, &other)?,
            Binary::SiluMul => self.cpu.silu_mul(&mut want, rows, &other)?,
        }
        Ok(Outcome::near(&out.read()?, &self.of_cpu(&want, rows * cols)?))
    }

    fn unary(&mut self, operation: Unary, rows: usize, cols: usize, on: On) -> Result<Outcome> {
        let a: Vec<f32> = values(rows * cols, 3).iter().map(|x| 64.0 * x).collect();
        let (x, out) = (self.on_device(&a, cols)?, self.fresh(rows, cols)?);
        self.programs.run(&op::unary(operation, &x, &out, on.cores(self)), true)?;
        let mut want = self.on_cpu(&a, cols)?;
        match operation {
            Unary::Scale(factor) => self.cpu.scale_cap(&mut want, rows, factor, None)?,
            Unary::Cap { scale, cap } => self.cpu.scale_cap(&mut want, rows, scale, Some(cap))?,
        }
        Ok(Outcome::near(&out.read()?, &self.of_cpu(&want, rows * cols)?))
    }

    fn rms_norm(&mut self, rows: usize, cols: usize, weighted: bool, on: On) -> Result<Outcome> {
        let (x, weight) = (values(rows * cols, 4), values(cols, 5));
        let (a, out) = (self.on_device(&x, cols)?, self.fresh(rows, cols)?);
        let by = weighted.then(|| self.on_device(&weight, cols)).transpose()?;
        let eps = if weighted { 1e-5 } else { 1e-8 };
        self.programs.run(&op::rms_norm(&a, by.as_ref(), eps, &out, on.cores(self)), true)?;
        let mut want = self.cpu.alloc(rows, cols)?;
        let by = weighted.then(|| self.on_cpu(&weight, cols)).transpose()?;
        self.cpu.rms_norm(&self.on_cpu(&x, cols)?, rows, by.as_ref(), eps, &mut want)?;
        Ok(Outcome::near(&out.read()?, &self.of_cpu(&want, rows * cols)?))
    }

    /// Exact, and rows that nobody asked for are zero.
    fn embed(&mut self, rows: usize, cols: usize, on: On) -> Result<Outcome> {
        const VOCAB: usize = 50;
        let table = values(VOCAB * cols, 6);
        let ids: Vec<u32> = (0..rows as u32 - 1).map(|i| i * 7 % VOCAB as u32).collect();
        let device = self.programs.device();
        let (rows_of, numbers) = (Table::of(device, &table, cols)?, Ids::of(device, &ids)?);
        let out = self.fresh(rows, cols)?;
        let plan = op::embed(&rows_of, &numbers, ids.len() as u32, &out, on.cores(self));
        self.programs.run(&plan, true)?;
        let weight = self.weight(&table, cols)?;
        let mut want = self.cpu.alloc(rows, cols)?;
        let tokens: Vec<Token> = ids.iter().copied().map(Token).collect();
        self.cpu.embed(&weight, &tokens, &mut want, 0)?;
        Ok(Outcome::exact(&out.read()?, &self.of_cpu(&want, rows * cols)?))
    }

    fn matmul(
        &mut self,
        rows: usize,
        deep: usize,
        cols: usize,
        format: TileFormat,
        on: On,
    ) -> Result<Outcome> {
        let (x, w) = (values(rows * deep, 7), values(cols * deep, 8));
        let device = self.programs.device();
        let weight = Matrix::transposed(device, format, &w, deep)?;
        let (a, out) = (self.on_device(&x, deep)?, self.fresh(rows, cols)?);
        self.programs.run(&op::matmul(&a, &weight, &out, on.cores(self)), true)?;
        // What the device was given, not what it was made from.
        let tiles = format.tilize_transposed(&w, deep);
        let turned = format.untilize(&tiles, deep, cols);
        let held: Vec<f32> = (0..cols * deep).map(|i| turned[i % deep * cols + i / deep]).collect();
        let (held, mut want) = (self.weight(&held, deep)?, self.cpu.alloc(rows, cols)?);
        self.cpu.linear(&self.on_cpu(&x, deep)?, rows, &mut [(&held, &mut want)])?;
        Ok(Outcome::near(&out.read()?, &self.of_cpu(&want, rows * cols)?))
    }

    fn weight(&self, values: &[f32], cols: usize) -> Result<<Cpu as Backend>::Weight> {
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        let (rows, format) = (values.len() / cols, Format::F32);
        self.cpu.load(WeightView { name: "w", format, rows, cols, bytes: bytes.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_a_factor_nor_an_offset_passes() {
        let want = values(1024, 9);
        let passes = |change: fn(f32) -> f32| {
            let got: Vec<f32> = want.iter().map(|x| change(*x)).collect();
            Outcome::near(&got, &want).passes()
        };
        assert!(passes(|x| x) && passes(|x| x * 1.01));
        assert!(!passes(|x| 2.0 * x) && !passes(|x| x + 0.5) && !passes(|x| -x));
        assert!(!passes(|_| f32::NAN) && !passes(|_| 0.0));
    }
}
