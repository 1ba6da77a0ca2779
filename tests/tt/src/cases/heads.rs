//! Operations on the heads of rows, in place.

use muse_core::Result;
use muse_core::contract::{Backend, Rope};
use muse_tt::op::{self, Rotations};
use muse_tt::{Ids, positions};

use crate::lane::Needs;

use super::sequence::{Sequence, places};
use super::{Bench, Case, Least, On, Outcome, TILE_PRODUCT, case, values};

/// Each width of a head, for rows that fill their tiles and for one more.
pub(super) fn cases(on: On) -> impl Iterator<Item = Case> {
    [(32, 32, 2), (32, 64, 1), (33, 32, 3), (33, 128, 2)].into_iter().flat_map(
        move |(rows, dim, heads)| {
            let quick = matches!((on, rows, dim), (On::One, 32, 32));
            let name = |what: &str| format!("{what}/{dim}");
            let norm = move |bench: &mut Bench| bench.head_norm(rows, dim, heads, on);
            let rope = move |bench: &mut Bench| bench.rope(rows, dim, heads, on);
            [
                case(&name("head_norm"), rows, dim * heads, on, quick, Needs::Little, norm),
                case(&name("rope"), rows, dim * heads, on, quick, Needs::Little, rope),
            ]
        },
    )
}

impl Bench {
    fn head_norm(&mut self, rows: usize, dim: usize, heads: usize, on: On) -> Result<Outcome> {
        let cols = dim * heads;
        let (x, weight) = (values(rows * cols, 11), vec![3.87; dim]);
        let (a, by) = (self.on_device(&x, cols)?, self.on_device(&weight, dim)?);
        let plan = op::head_norm(&a, &by, 1e-5, &a, on.cores(self));
        self.programs.run(&plan, true)?;
        // The weight for each core; sums over heads are products with ones.
        self.least = Least {
            read: a.bytes() + plan.cores() * by.bytes(),
            written: a.bytes(),
            multiply_adds: a.tile_count() / (dim / 32) as u64 * TILE_PRODUCT,
            ..Least::default()
        };
        let (mut want, by) = (self.on_cpu(&x, cols)?, self.on_cpu(&weight, dim)?);
        self.cpu.head_norm(&mut want, rows, &by, 1e-5)?;
        Ok(Outcome::near(&a.read()?, &self.of_cpu(&want, rows * cols)?))
    }

    fn rope(&mut self, rows: usize, dim: usize, heads: usize, on: On) -> Result<Outcome> {
        const POSITIONS: usize = 256;
        let (cols, rope) = (dim * heads, Rope { head_dim: dim, theta: 500_000.0 });
        let sequences = Sequence::all(&[(3, 20), (200, rows - 20)], 8);
        let (x, places) = (values(rows * cols, 12), places(&sequences));
        let device = self.programs.device();
        let rotations = Rotations::new(device, &rope, POSITIONS)?;
        let at = Ids::of(device, &positions(&places))?;
        let a = self.on_device(&x, cols)?;
        let plan = op::rope(&a, &at, &rotations, &a, on.cores(self));
        self.programs.run(&plan, true)?;
        // A core reads the table for every row of tiles that it has a head of, and turns heads of
        // one tile by itself.
        let heads = heads as u32;
        let runs = plan.shape.cores.split(a.tile_shape().0 * heads);
        let tables: u32 =
            runs.map(|(_, at, count)| (at + count - 1) / heads - at / heads + 1).sum();
        self.least = Least {
            read: a.bytes() + plan.cores() * at.bytes() + u64::from(tables) * 32 * 8 * dim as u64,
            written: a.bytes(),
            between: if dim == 32 { a.bytes() } else { 0 },
            ..Least::default()
        };
        let mut want = self.on_cpu(&x, cols)?;
        self.cpu.rope(&mut want, &places, &rope)?;
        Ok(Outcome::near(&a.read()?, &self.of_cpu(&want, rows * cols)?))
    }
}
