//! Operations on the heads of rows, in place.

use muse_core::Result;
use muse_core::contract::{Backend, Rope};
use muse_tt::op::{self, Rotations};
use muse_tt::{Ids, positions};

use crate::lane::Needs;

use super::sequence::{Sequence, places};
use super::{Bench, Case, On, Outcome, case, values};

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
        self.programs.run(&op::head_norm(&a, &by, 1e-5, &a, on.cores(self)), true)?;
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
        self.programs.run(&op::rope(&a, &at, &rotations, &a, on.cores(self)), true)?;
        let mut want = self.on_cpu(&x, cols)?;
        self.cpu.rope(&mut want, &places, &rope)?;
        Ok(Outcome::near(&a.read()?, &self.of_cpu(&want, rows * cols)?))
    }
}
