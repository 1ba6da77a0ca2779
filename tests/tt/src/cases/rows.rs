//! Operations on rows: value by value, norms, and rows of a table.

use muse_core::Result;
use muse_core::contract::{Backend, Token};
use muse_core::quant::tile::SIDE;
use muse_tt::op::{self, Binary, Unary};
use muse_tt::{Ids, Table};

use crate::lane::Needs;

use super::{Bench, CANARY, Case, Kind, On, Outcome, TILE_PRODUCT, case, tiles, values};

/// The two of the published model.
const EPS: [(f32, &str); 2] = [(1e-5, "1e-5"), (1e-8, "1e-8")];

/// Rows and columns: for a slow simulator, and of the published width, which fill all cores.
const SMALL: [(usize, usize); 3] = [(32, 32), (32, 128), (33, 96)];
const WIDE: (usize, usize) = (32, 6656);

/// Each of them at each size.
pub(super) fn cases(on: On) -> impl Iterator<Item = Case> {
    let by_value = SMALL.into_iter().chain([WIDE]).flat_map(move |shape| by_value(shape, on));
    // More rows than a row has cores, rows that several cores share, and as many as fill the grid.
    let shared = [(512, 256), (32, 512), WIDE, (160, 6656)];
    let norms = SMALL.into_iter().chain(shared).flat_map(move |shape| norms(shape, on));
    let alone = case("rms_norm/alone", 160, 6656, on, false, Needs::Speed, move |bench| {
        bench.rms_norm_alone(160, 6656, on)
    });
    by_value.chain([alone.uncounted()]).chain(norms)
}

fn needs(shape: (usize, usize)) -> Needs {
    if shape.0 * shape.1 <= 1 << 14 { Needs::Little } else { Needs::Speed }
}

fn by_value(shape: (usize, usize), on: On) -> Vec<Case> {
    let (rows, cols) = shape;
    let (quick, needs) = (matches!((on, shape), (On::One, (32, 32))), needs(shape));
    let mut cases = Vec::new();
    for (name, operation) in
        [("add", Binary::Add), ("gate", Binary::Gate), ("silu_mul", Binary::SiluMul)]
    {
        cases.push(case(name, rows, cols, on, quick, needs, move |bench| {
            bench.binary(operation, rows, cols, on)
        }));
    }
    for (name, operation) in
        [("scale", Unary::Scale(0.196)), ("cap", Unary::Cap { scale: 0.196, cap: 20.0 })]
    {
        cases.push(case(name, rows, cols, on, quick, needs, move |bench| {
            bench.unary(operation, rows, cols, on)
        }));
    }
    let embed = move |bench: &mut Bench| bench.embed(rows, cols, on);
    cases.push(case("embed", rows, cols, on, quick, needs, embed));
    let copy = move |bench: &mut Bench| bench.copy(rows, cols, on);
    cases.push(case("copy", rows, cols, on, quick, needs, copy));
    cases
}

fn norms(shape: (usize, usize), on: On) -> impl Iterator<Item = Case> {
    let (rows, cols) = shape;
    let kinds = [true, false].into_iter().flat_map(|weighted| EPS.map(|eps| (weighted, eps)));
    kinds.map(move |(weighted, (eps, named))| {
        // Two cores; one alone runs the same kernels for heads.
        let shared = matches!((on, shape), (On::Row, (32, 512)));
        let quick = weighted && eps == EPS[0].0 && shared;
        let name = format!("rms_norm{}/{named}", if weighted { "" } else { "_plain" });
        case(&name, rows, cols, on, quick, needs(shape), move |bench| {
            bench.rms_norm(rows, cols, weighted, eps, on)
        })
    })
}

/// BatchInput whose mean squares are ordinary, near either of [`EPS`], and 0: another one shows.
fn rows_near_eps(rows: usize, cols: usize) -> Vec<f32> {
    let factors = [1.0, 2.0_f32.powi(-8), 2.0_f32.powi(-13), 0.0];
    let mut values = values(rows * cols, 4);
    for (row, values) in values.chunks_exact_mut(cols).enumerate() {
        let factor = factors[(row + row / 32) % factors.len()];
        values.iter_mut().for_each(|x| *x *= factor);
    }
    values
}

impl Bench {
    fn binary(&mut self, operation: Binary, rows: usize, cols: usize, on: On) -> Result<Outcome> {
        let (a, b) = (values(rows * cols, 1), values(rows * cols, 2));
        let out = self.fresh(rows, cols)?;
        let (x, y) = (self.on_device(&a, cols)?, self.on_device(&b, cols)?);
        let plan = op::binary(operation, &x, &y, &out, on.cores(self));
        self.programs.run(&plan, true)?;
        (self.due.read, self.due.written) = (x.bytes() + y.bytes(), out.bytes());
        self.due.cores = on.busy(self, tiles(rows, cols));
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
        (self.due.read, self.due.written) = (x.bytes(), out.bytes());
        self.due.cores = on.busy(self, tiles(rows, cols));
        let mut want = self.on_cpu(&a, cols)?;
        match operation {
            Unary::Scale(factor) => self.cpu.scale_softcap(&mut want, rows, factor, None)?,
            Unary::Cap { scale, cap } => {
                self.cpu.scale_softcap(&mut want, rows, scale, Some(cap))?
            }
        }
        Ok(Outcome::near(&out.read()?, &self.of_cpu(&want, rows * cols)?))
    }

    fn rms_norm(
        &mut self,
        rows: usize,
        cols: usize,
        weighted: bool,
        eps: f32,
        on: On,
    ) -> Result<Outcome> {
        let (x, weight) = (rows_near_eps(rows, cols), values(cols, 5));
        let (a, out) = (self.on_device(&x, cols)?, self.fresh(rows, cols)?);
        let by = weighted.then(|| self.on_device(&weight, cols)).transpose()?;
        self.programs.run(&op::rms_norm(&a, by.as_ref(), eps, &out, on.cores(self)), true)?;
        self.norm_due(rows, cols, on);
        (self.due.read, self.due.written) = (a.bytes(), out.bytes());
        if let Some(by) = by {
            self.due.read += by.bytes();
            let again = on.busy(self, rows.div_ceil(SIDE)) - 1;
            self.due.beyond(Kind::Read, again * by.bytes(), "a weight for rows that run at once");
        }
        let mut want = self.cpu.alloc(rows, cols)?;
        let by = weighted.then(|| self.on_cpu(&weight, cols)).transpose()?;
        self.cpu.rms_norm(&self.on_cpu(&x, cols)?, rows, by.as_ref(), eps, &mut want)?;
        Ok(Outcome::near(&out.read()?, &self.of_cpu(&want, rows * cols)?))
    }

    /// What adding up rows comes to: cores share a row by blocks of eight tiles.
    fn norm_due(&mut self, rows: usize, cols: usize, on: On) {
        const SUM: u64 = 4096;
        let (down, blocks) = (rows.div_ceil(SIDE), cols.div_ceil(8 * SIDE));
        let share = (on.busy(self, usize::MAX) as usize / down).clamp(1, blocks);
        self.due.cores = on.busy(self, down * share);
        let sums = (down * blocks) as u64;
        self.due.beyond(Kind::Products, sums * TILE_PRODUCT, "sums, which are products with ones");
        if share > 1 {
            let factors = (down * share) as u64;
            self.due.beyond(Kind::Between, (sums + factors) * SUM, "sums and factors");
        }
    }

    /// A row of tiles alone, which more cores share, gives the bits that it has in company.
    fn rms_norm_alone(&mut self, rows: usize, cols: usize, on: On) -> Result<Outcome> {
        let (x, weight) = (rows_near_eps(rows, cols), values(cols, 5));
        let by = self.on_device(&weight, cols)?;
        let (mut together, mut alone) = (Vec::new(), Vec::new());
        for (rows, got) in [(rows, &mut together), (SIDE, &mut alone)] {
            let (a, out) = (self.on_device(&x[..rows * cols], cols)?, self.fresh(rows, cols)?);
            let plan = op::rms_norm(&a, Some(&by), EPS[0].0, &out, on.cores(self));
            self.programs.run(&plan, true)?;
            *got = out.read()?;
        }
        Ok(Outcome::exact(&together[..SIDE * cols], &alone))
    }

    /// Exact, and nothing else changes: rows in and out of order, some twice, to where tiles end in
    /// between.
    fn copy(&mut self, rows: usize, cols: usize, on: On) -> Result<Outcome> {
        const AT: (usize, usize) = (29, 32);
        let (count, width) = (rows.min(20), cols + 64);
        let (x, fresh) = (values(rows * cols, 16), vec![CANARY; 64 * width]);
        let chosen: Vec<u32> =
            (0..count as u32).map(|i| [i, 31 - i][usize::from(i % 3 == 0)]).collect();
        let (from, to) = (self.on_device(&x, cols)?, self.on_device(&fresh, width)?);
        let numbers = Ids::of(self.programs.device(), &chosen)?;
        let plan = op::copy(&from, &numbers, count as u32, &to, AT, on.cores(self));
        self.programs.run(&plan, true)?;
        self.due.read = from.top(32).bytes() + numbers.bytes();
        self.due.written = 2 * (count * cols) as u64;
        self.numbers_due(numbers.bytes(), cols / SIDE, on);
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
        self.due.read = ids.len() as u64 * rows_of.row_bytes() + numbers.bytes();
        self.due.written = out.bytes();
        self.numbers_due(numbers.bytes(), tiles(rows, cols), on);
        let weight = self.weight(&table, cols)?;
        let mut want = self.cpu.alloc(rows, cols)?;
        let tokens: Vec<Token> = ids.iter().copied().map(Token).collect();
        self.cpu.embed(&weight, &tokens, &mut want, 0)?;
        Ok(Outcome::exact(&out.read()?, &self.of_cpu(&want, rows * cols)?))
    }
}
