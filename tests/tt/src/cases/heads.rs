//! Operations on the heads of rows, in place.

use muse_core::Result;
use muse_core::contract::{Backend, Rope};
use muse_core::quant::tile::SIDE;
use muse_tt::op::{self, Rotations};
use muse_tt::{Ids, positions};

use crate::lane::Needs;

use super::sequence::{Sequence, slices};
use super::{Bench, Case, Kind, On, Outcome, TILE_PRODUCT, case, values};

/// Each width of a head, for rows that fill their tiles and for one more, and the heads of the
/// published model: of a verify, and of as many rows as fill all cores.
pub(super) fn cases(on: On) -> impl Iterator<Item = Case> {
    let shapes = [(32, 32, 2), (32, 64, 1), (33, 32, 3), (33, 128, 2)];
    let real = [(32, 128, 32), (160, 128, 32)];
    shapes.into_iter().chain(real).flat_map(move |(rows, dim, heads)| {
        let quick = matches!((on, rows, dim), (On::One, 32, 32));
        let needs = if heads > 3 { Needs::Speed } else { Needs::Little };
        let name = |what: &str| format!("{what}/{dim}");
        let norm = move |bench: &mut Bench| bench.head_norm(rows, dim, heads, on);
        let rope = move |bench: &mut Bench| bench.rope(rows, dim, heads, on);
        [
            case(&name("head_norm"), rows, dim * heads, on, quick, needs, norm),
            case(&name("rope"), rows, dim * heads, on, quick, needs, rope),
        ]
    })
}

impl Bench {
    fn head_norm(&mut self, rows: usize, dim: usize, heads: usize, on: On) -> Result<Outcome> {
        let cols = dim * heads;
        let (x, weight) = (values(rows * cols, 11), vec![3.87; dim]);
        let (a, by) = (self.on_device(&x, cols)?, self.on_device(&weight, dim)?);
        self.programs.run(&op::head_norm(&a, &by, 1e-5, &a, on.cores(self)), true)?;
        (self.due.read, self.due.written) = (a.bytes() + by.bytes(), a.bytes());
        let sums = rows.div_ceil(SIDE) * heads;
        self.due.cores = on.busy(self, sums);
        let (cores, sums) = (self.due.cores, sums as u64);
        self.due.beyond(Kind::Read, (cores - 1) * by.bytes(), "a weight for each core");
        self.due.beyond(Kind::Products, sums * TILE_PRODUCT, "sums, which are products with ones");
        let (mut want, by) = (self.on_cpu(&x, cols)?, self.on_cpu(&weight, dim)?);
        self.cpu.head_norm(&mut want, rows, &by, 1e-5)?;
        Ok(Outcome::near(&a.read()?, &self.of_cpu(&want, rows * cols)?))
    }

    fn rope(&mut self, rows: usize, dim: usize, heads: usize, on: On) -> Result<Outcome> {
        const POSITIONS: usize = 512;
        let (cols, rope) = (dim * heads, Rope { head_dim: dim, theta: 500_000.0 });
        let sequences = Sequence::all(&[(3, 20), (200, rows - 20)], 8);
        let (x, slices) = (values(rows * cols, 12), slices(&sequences));
        let device = self.programs.device();
        let rotations = Rotations::new(device, &rope, POSITIONS)?;
        let at = Ids::of(device, &positions(&slices))?;
        let a = self.on_device(&x, cols)?;
        self.programs.run(&op::rope(&a, &at, &rotations, &a, on.cores(self)), true)?;
        let down = rows.div_ceil(SIDE);
        let table = (SIDE * 2 * dim * size_of::<f32>()) as u64;
        self.due.read = a.bytes() + at.bytes() + down as u64 * table;
        self.due.written = a.bytes();
        self.numbers_due(at.bytes(), down * heads, on);
        let units = (down * heads) as u32;
        let rows_of = |(_, first, count): (_, u32, u32)| {
            (first + count - 1) / heads as u32 - first / heads as u32 + 1
        };
        let runs = on.cores(self).for_work(units).split(units);
        let again = u64::from(runs.map(rows_of).sum::<u32>()) - down as u64;
        self.due.beyond(Kind::Read, again * table, "sines for heads of a row that run at once");
        if dim == SIDE {
            self.due.beyond(Kind::Between, a.bytes(), "turning heads of one tile");
        }
        let mut want = self.on_cpu(&x, cols)?;
        self.cpu.rope(&mut want, &slices, &rope)?;
        Ok(Outcome::near(&a.read()?, &self.of_cpu(&want, rows * cols)?))
    }
}
