//! Operations on rows: value by value, norms, and rows of a table.

use muse_core::Result;
use muse_core::contract::{Backend, Token};
use muse_tt::op::{self, Binary, Unary};
use muse_tt::{Ids, Table};

use crate::lane::Needs;

use super::{Bench, Case, On, Outcome, TILE_PRODUCT, case, values};

/// Each of them at each size, and the norm of the published width.
pub(super) fn cases(on: On) -> impl Iterator<Item = Case> {
    let wide = [true, false].map(move |weighted| {
        let run = move |bench: &mut Bench| bench.rms_norm(32, 6656, weighted, on);
        let name = if weighted { "rms_norm" } else { "rms_norm_plain" };
        case(name, 32, 6656, on, false, Needs::Speed, run)
    });
    small(on).chain(wide)
}

fn small(on: On) -> impl Iterator<Item = Case> {
    [(32, 32), (32, 128), (33, 96)].into_iter().flat_map(move |(rows, cols)| {
        let quick = matches!((on, rows, cols), (On::One, 32, 32));
        let mut cases = Vec::new();
        for (name, operation) in
            [("add", Binary::Add), ("gate", Binary::Gate), ("silu_mul", Binary::SiluMul)]
        {
            cases.push(case(name, rows, cols, on, quick, Needs::Little, move |bench| {
                bench.binary(operation, rows, cols, on)
            }));
        }
        for (name, operation) in
            [("scale", Unary::Scale(0.196)), ("cap", Unary::Cap { scale: 0.196, cap: 20.0 })]
        {
            cases.push(case(name, rows, cols, on, quick, Needs::Little, move |bench| {
                bench.unary(operation, rows, cols, on)
            }));
        }
        for (name, weighted) in [("rms_norm", true), ("rms_norm_plain", false)] {
            let quick = quick && weighted;
            cases.push(case(name, rows, cols, on, quick, Needs::Little, move |bench| {
                bench.rms_norm(rows, cols, weighted, on)
            }));
        }
        cases.push(case("embed", rows, cols, on, quick, Needs::Little, move |bench| {
            bench.embed(rows, cols, on)
        }));
        cases.push(case("copy", rows, cols, on, quick, Needs::Little, move |bench| {
            bench.copy(rows, cols, on)
        }));
        cases
    })
}

impl Bench {
    fn binary(&mut self, operation: Binary, rows: usize, cols: usize, on: On) -> Result<Outcome> {
        let (a, b) = (values(rows * cols, 1), values(rows * cols, 2));
        let out = self.fresh(rows, cols)?;
        let (x, y) = (self.on_device(&a, cols)?, self.on_device(&b, cols)?);
        let plan = op::binary(operation, &x, &y, &out, on.cores(self));
        self.programs.run(&plan, true)?;
        self.least.read = x.bytes() + y.bytes();
        self.least.written = out.bytes();
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
        (self.least.read, self.least.written) = (x.bytes(), out.bytes());
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
        let plan = op::rms_norm(&a, by.as_ref(), eps, &out, on.cores(self));
        self.programs.run(&plan, true)?;
        // The weight for each core; sums over rows are products with ones.
        let weights = by.map_or(0, |by| by.bytes() * plan.cores());
        self.least.read = a.bytes() + weights;
        self.least.written = out.bytes();
        self.least.multiply_adds = u64::from(a.tile_shape().0) * TILE_PRODUCT;
        let mut want = self.cpu.alloc(rows, cols)?;
        let by = weighted.then(|| self.on_cpu(&weight, cols)).transpose()?;
        self.cpu.rms_norm(&self.on_cpu(&x, cols)?, rows, by.as_ref(), eps, &mut want)?;
        Ok(Outcome::near(&out.read()?, &self.of_cpu(&want, rows * cols)?))
    }

    /// Exact, and nothing else changes: rows in and out of order, some twice, to where tiles end in
    /// between.
    fn copy(&mut self, rows: usize, cols: usize, on: On) -> Result<Outcome> {
        const AT: (usize, usize) = (29, 32);
        let (count, width) = (rows.min(20), cols + 64);
        let (x, fresh) = (values(rows * cols, 16), vec![-77.0; 64 * width]);
        let chosen: Vec<u32> =
            (0..count as u32).map(|i| [i, 31 - i][usize::from(i % 3 == 0)]).collect();
        let (from, to) = (self.on_device(&x, cols)?, self.on_device(&fresh, width)?);
        let numbers = Ids::of(self.programs.device(), &chosen)?;
        let plan = op::copy(&from, &numbers, count as u32, &to, AT, on.cores(self));
        self.programs.run(&plan, true)?;
        self.least.read = from.top(32).bytes() + plan.cores() * numbers.bytes();
        self.least.written = 2 * (count * cols) as u64;
        let mut want = self.on_cpu(&fresh, width)?;
        self.cpu.copy(&self.on_cpu(&x, cols)?, &chosen, &mut want, AT.0, AT.1)?;
        Ok(Outcome::exact(&to.read()?, &self.of_cpu(&want, 64 * width)?))
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
        self.least.read = ids.len() as u64 * rows_of.row_bytes() + plan.cores() * numbers.bytes();
        self.least.written = out.bytes();
        let weight = self.weight(&table, cols)?;
        let mut want = self.cpu.alloc(rows, cols)?;
        let tokens: Vec<Token> = ids.iter().copied().map(Token).collect();
        self.cpu.embed(&weight, &tokens, &mut want, 0)?;
        Ok(Outcome::exact(&out.read()?, &self.of_cpu(&want, rows * cols)?))
    }
}
