//! Operations on rows: elementwise operations, norms, copies and embedding.

use muse_core::Result;
use muse_core::contract::{Backend, Token};
use muse_core::quant::tile::SIDE;
use muse_tt::op::{self, Binary, Unary};
use muse_tt::{EmbeddingTable, IndexBuffer};

use crate::lane::Requirement;

use super::{CANARY, Case, CoreSet, CostKind, Harness, Outcome, TILE_PRODUCT, case, tiles, values};

/// The two values of the published model.
const EPS: [(f32, &str); 2] = [(1e-5, "1e-5"), (1e-8, "1e-8")];

/// Rows and columns: for a slow simulator, and with the published width, which fills all cores.
const SMALL: [(usize, usize); 3] = [(32, 32), (32, 128), (33, 96)];
const WIDE: (usize, usize) = (32, 6656);

/// Every operation at every size.
pub(super) fn cases(core_set: CoreSet) -> impl Iterator<Item = Case> {
    let elementwise =
        SMALL.into_iter().chain([WIDE]).flat_map(move |shape| elementwise(shape, core_set));
    // More rows of tiles than a row has cores, rows that several cores share, and enough to fill
    // the grid.
    let shared = [(512, 256), (32, 512), WIDE, (160, 6656)];
    let norms = SMALL.into_iter().chain(shared).flat_map(move |shape| norms(shape, core_set));
    let alone =
        case("rms_norm/alone", 160, 6656, core_set, false, Requirement::Speed, move |harness| {
            harness.rms_norm_alone(160, 6656, core_set)
        });
    elementwise.chain([alone.without_cost()]).chain(norms)
}

fn requirement(shape: (usize, usize)) -> Requirement {
    if shape.0 * shape.1 <= 1 << 14 { Requirement::Basic } else { Requirement::Speed }
}

fn elementwise(shape: (usize, usize), core_set: CoreSet) -> Vec<Case> {
    let (rows, cols) = shape;
    let (quick, requirement) =
        (matches!((core_set, shape), (CoreSet::One, (32, 32))), requirement(shape));
    let mut cases = Vec::new();
    for (name, operation) in
        [("add", Binary::Add), ("gate", Binary::Gate), ("silu_mul", Binary::SiluMul)]
    {
        cases.push(case(name, rows, cols, core_set, quick, requirement, move |harness| {
            harness.binary(operation, rows, cols, core_set)
        }));
    }
    for (name, operation) in [
        ("scale", Unary::Scale(0.196)),
        ("softcap", Unary::Softcap { scale: 0.196, softcap: 20.0 }),
    ] {
        cases.push(case(name, rows, cols, core_set, quick, requirement, move |harness| {
            harness.unary(operation, rows, cols, core_set)
        }));
    }
    let embed = move |harness: &mut Harness| harness.embed(rows, cols, core_set);
    cases.push(case("embed", rows, cols, core_set, quick, requirement, embed));
    let copy = move |harness: &mut Harness| harness.copy(rows, cols, core_set);
    cases.push(case("copy", rows, cols, core_set, quick, requirement, copy));
    cases
}

fn norms(shape: (usize, usize), core_set: CoreSet) -> impl Iterator<Item = Case> {
    let (rows, cols) = shape;
    let kinds = [true, false].into_iter().flat_map(|weighted| EPS.map(|eps| (weighted, eps)));
    kinds.map(move |(weighted, (eps, named))| {
        // Two cores that share a row; head_norm covers the kernels of one core alone.
        let shared = matches!((core_set, shape), (CoreSet::Row, (32, 512)));
        let quick = weighted && eps == EPS[0].0 && shared;
        let name = format!("rms_norm{}/{named}", if weighted { "" } else { "_plain" });
        case(&name, rows, cols, core_set, quick, requirement(shape), move |harness| {
            harness.rms_norm(rows, cols, weighted, eps, core_set)
        })
    })
}

/// Rows whose mean squares are ordinary, near each of [`EPS`], and 0, so that a wrong eps shows.
fn rows_near_eps(rows: usize, cols: usize) -> Vec<f32> {
    let factors = [1.0, 2.0_f32.powi(-8), 2.0_f32.powi(-13), 0.0];
    let mut values = values(rows * cols, 4);
    for (row, values) in values.chunks_exact_mut(cols).enumerate() {
        let factor = factors[(row + row / 32) % factors.len()];
        values.iter_mut().for_each(|x| *x *= factor);
    }
    values
}

impl Harness {
    fn binary(
        &mut self,
        operation: Binary,
        rows: usize,
        cols: usize,
        core_set: CoreSet,
    ) -> Result<Outcome> {
        let (a, b) = (values(rows * cols, 1), values(rows * cols, 2));
        let out = self.fresh(rows, cols)?;
        let (x, y) = (self.on_device(&a, cols)?, self.on_device(&b, cols)?);
        let plan = op::binary(operation, &x, &y, &out, core_set.cores(self));
        self.programs.run(&plan, true)?;
        (self.expected.read, self.expected.written) = (x.bytes() + y.bytes(), out.bytes());
        self.expected.cores = core_set.busy(self, tiles(rows, cols));
        let (mut reference, other) = (self.on_cpu(&a, cols)?, self.on_cpu(&b, cols)?);
        match operation {
            Binary::Add => self.cpu.add(&mut reference, rows, &other)?,
            Binary::Gate => self.cpu.gate(&mut reference, rows, &other)?,
            Binary::SiluMul => self.cpu.silu_mul(&mut reference, rows, &other)?,
        }
        Ok(Outcome::near(&out.read()?, &self.of_cpu(&reference, rows * cols)?))
    }

    fn unary(
        &mut self,
        operation: Unary,
        rows: usize,
        cols: usize,
        core_set: CoreSet,
    ) -> Result<Outcome> {
        let a: Vec<f32> = values(rows * cols, 3).iter().map(|x| 64.0 * x).collect();
        let (x, out) = (self.on_device(&a, cols)?, self.fresh(rows, cols)?);
        self.programs.run(&op::unary(operation, &x, &out, core_set.cores(self)), true)?;
        (self.expected.read, self.expected.written) = (x.bytes(), out.bytes());
        self.expected.cores = core_set.busy(self, tiles(rows, cols));
        let mut reference = self.on_cpu(&a, cols)?;
        match operation {
            Unary::Scale(factor) => self.cpu.scale_softcap(&mut reference, rows, factor, None)?,
            Unary::Softcap { scale, softcap } => {
                self.cpu.scale_softcap(&mut reference, rows, scale, Some(softcap))?
            }
        }
        Ok(Outcome::near(&out.read()?, &self.of_cpu(&reference, rows * cols)?))
    }

    fn rms_norm(
        &mut self,
        rows: usize,
        cols: usize,
        weighted: bool,
        eps: f32,
        core_set: CoreSet,
    ) -> Result<Outcome> {
        let (x, weight) = (rows_near_eps(rows, cols), values(cols, 5));
        let (a, out) = (self.on_device(&x, cols)?, self.fresh(rows, cols)?);
        let scale = weighted.then(|| self.on_device(&weight, cols)).transpose()?;
        self.programs
            .run(&op::rms_norm(&a, scale.as_ref(), eps, &out, core_set.cores(self)), true)?;
        self.expect_norm(rows, cols, core_set);
        (self.expected.read, self.expected.written) = (a.bytes(), out.bytes());
        if let Some(scale) = scale {
            self.expected.read += scale.bytes();
            let again = core_set.busy(self, rows.div_ceil(SIDE)) - 1;
            self.expected.overhead(
                CostKind::Read,
                again * scale.bytes(),
                "the weight for rows that are computed in parallel",
            );
        }
        let mut reference = self.cpu.alloc(rows, cols)?;
        let scale = weighted.then(|| self.on_cpu(&weight, cols)).transpose()?;
        self.cpu.rms_norm(&self.on_cpu(&x, cols)?, rows, scale.as_ref(), eps, &mut reference)?;
        Ok(Outcome::near(&out.read()?, &self.of_cpu(&reference, rows * cols)?))
    }

    /// Expects the sums of rows: cores share a row in groups of eight tiles.
    fn expect_norm(&mut self, rows: usize, cols: usize, core_set: CoreSet) {
        const SUM: u64 = 4096;
        let (down, groups) = (rows.div_ceil(SIDE), cols.div_ceil(8 * SIDE));
        let share = (core_set.busy(self, usize::MAX) as usize / down).clamp(1, groups);
        self.expected.cores = core_set.busy(self, down * share);
        let sums = (down * groups) as u64;
        self.expected.overhead(
            CostKind::Products,
            sums * TILE_PRODUCT,
            "sums, which are products with ones",
        );
        if share > 1 {
            let factors = (down * share) as u64;
            self.expected.overhead(
                CostKind::CoreToCore,
                (sums + factors) * SUM,
                "sums and factors",
            );
        }
    }

    /// A row of tiles alone, which more cores share, gives the same bits as among others.
    fn rms_norm_alone(&mut self, rows: usize, cols: usize, core_set: CoreSet) -> Result<Outcome> {
        let (x, weight) = (rows_near_eps(rows, cols), values(cols, 5));
        let scale = self.on_device(&weight, cols)?;
        let (mut together, mut alone) = (Vec::new(), Vec::new());
        for (rows, result) in [(rows, &mut together), (SIDE, &mut alone)] {
            let (a, out) = (self.on_device(&x[..rows * cols], cols)?, self.fresh(rows, cols)?);
            let plan = op::rms_norm(&a, Some(&scale), EPS[0].0, &out, core_set.cores(self));
            self.programs.run(&plan, true)?;
            *result = out.read()?;
        }
        Ok(Outcome::exact(&together[..SIDE * cols], &alone))
    }

    /// Exact, and nothing else changes: rows in and out of order, some twice, to rows of two rows
    /// of tiles.
    fn copy(&mut self, rows: usize, cols: usize, core_set: CoreSet) -> Result<Outcome> {
        const AT: (usize, usize) = (29, 32);
        let (count, width) = (rows.min(20), cols + 64);
        let (x, fresh) = (values(rows * cols, 16), vec![CANARY; 64 * width]);
        let indices: Vec<u32> =
            (0..count as u32).map(|i| [i, 31 - i][usize::from(i % 3 == 0)]).collect();
        let (from, to) = (self.on_device(&x, cols)?, self.on_device(&fresh, width)?);
        let index_buffer = IndexBuffer::from_values(self.programs.device(), &indices)?;
        let plan = op::copy(&from, &index_buffer, count as u32, &to, AT, core_set.cores(self));
        self.programs.run(&plan, true)?;
        self.expected.read = from.first_rows(32).bytes() + index_buffer.bytes();
        self.expected.written = 2 * (count * cols) as u64;
        self.expect_indices(index_buffer.bytes(), cols / SIDE, core_set);
        let mut reference = self.on_cpu(&fresh, width)?;
        self.cpu.copy(&self.on_cpu(&x, cols)?, &indices, &mut reference, AT.0, AT.1)?;
        Ok(Outcome::exact(&to.read()?, &self.of_cpu(&reference, 64 * width)?))
    }

    /// Exact, and rows without an id are zero.
    fn embed(&mut self, rows: usize, cols: usize, core_set: CoreSet) -> Result<Outcome> {
        const VOCAB: usize = 50;
        let table = values(VOCAB * cols, 6);
        let ids: Vec<u32> = (0..rows as u32 - 1).map(|i| i * 7 % VOCAB as u32).collect();
        let device = self.programs.device();
        let embedding = EmbeddingTable::from_values(device, &table, cols)?;
        let index_buffer = IndexBuffer::from_values(device, &ids)?;
        let out = self.fresh(rows, cols)?;
        let plan =
            op::embed(&embedding, &index_buffer, ids.len() as u32, &out, core_set.cores(self));
        self.programs.run(&plan, true)?;
        self.expected.read = ids.len() as u64 * embedding.row_bytes() + index_buffer.bytes();
        self.expected.written = out.bytes();
        self.expect_indices(index_buffer.bytes(), tiles(rows, cols), core_set);
        let weight = self.weight(&table, cols)?;
        let mut reference = self.cpu.alloc(rows, cols)?;
        let tokens: Vec<Token> = ids.iter().copied().map(Token).collect();
        self.cpu.embed(&weight, &tokens, &mut reference, 0)?;
        Ok(Outcome::exact(&out.read()?, &self.of_cpu(&reference, rows * cols)?))
    }
}
