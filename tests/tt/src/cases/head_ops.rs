//! Operations on the heads of rows, in place: head norm and rotary embedding.

use muse_core::Result;
use muse_core::contract::{Backend, Rope};
use muse_core::quant::tile::SIDE;
use muse_tt::op::{self, RopeTable};
use muse_tt::{IndexBuffer, positions};

use crate::lane::Requirement;

use super::sequence::{Sequence, slices};
use super::{Case, CoreSet, CostKind, Harness, Outcome, TILE_PRODUCT, case, values};

/// Several widths of a head, with and without padding rows, and the heads of the published model:
/// of a verify step, and of enough rows to fill all cores.
pub(super) fn cases(core_set: CoreSet) -> impl Iterator<Item = Case> {
    let shapes = [(32, 32, 2), (32, 64, 1), (33, 32, 3), (33, 128, 2)];
    let published = [(32, 128, 32), (160, 128, 32)];
    shapes.into_iter().chain(published).flat_map(move |(rows, dim, heads)| {
        let quick = matches!((core_set, rows, dim), (CoreSet::One, 32, 32));
        let requirement = if heads > 3 { Requirement::Speed } else { Requirement::Basic };
        let name = |what: &str| format!("{what}/{dim}");
        let norm = move |harness: &mut Harness| harness.head_norm(rows, dim, heads, core_set);
        let rope = move |harness: &mut Harness| harness.rope(rows, dim, heads, core_set);
        [
            case(&name("head_norm"), rows, dim * heads, core_set, quick, requirement, norm),
            case(&name("rope"), rows, dim * heads, core_set, quick, requirement, rope),
        ]
    })
}

impl Harness {
    fn head_norm(
        &mut self,
        rows: usize,
        dim: usize,
        heads: usize,
        core_set: CoreSet,
    ) -> Result<Outcome> {
        let cols = dim * heads;
        let (x, weight) = (values(rows * cols, 11), vec![3.87; dim]);
        let (a, scale) = (self.on_device(&x, cols)?, self.on_device(&weight, dim)?);
        self.programs.run(&op::head_norm(&a, &scale, 1e-5, &a, core_set.cores(self)), true)?;
        (self.expected.read, self.expected.written) = (a.bytes() + scale.bytes(), a.bytes());
        let sums = rows.div_ceil(SIDE) * heads;
        self.expected.cores = core_set.busy(self, sums);
        let (cores, sums) = (self.expected.cores, sums as u64);
        self.expected.overhead(
            CostKind::Read,
            (cores - 1) * scale.bytes(),
            "the weight for each core",
        );
        self.expected.overhead(
            CostKind::Products,
            sums * TILE_PRODUCT,
            "sums, which are products with ones",
        );
        let (mut reference, scale) = (self.on_cpu(&x, cols)?, self.on_cpu(&weight, dim)?);
        self.cpu.head_norm(&mut reference, rows, &scale, 1e-5)?;
        Ok(Outcome::near(&a.read()?, &self.of_cpu(&reference, rows * cols)?))
    }

    fn rope(
        &mut self,
        rows: usize,
        dim: usize,
        heads: usize,
        core_set: CoreSet,
    ) -> Result<Outcome> {
        const POSITIONS: usize = 512;
        let (cols, rope) = (dim * heads, Rope { head_dim: dim, theta: 500_000.0 });
        let sequences = Sequence::all(&[(3, 20), (200, rows - 20)], 8);
        let (x, slices) = (values(rows * cols, 12), slices(&sequences));
        let device = self.programs.device();
        let rope_table = RopeTable::new(device, &rope, POSITIONS)?;
        let at = IndexBuffer::from_values(device, &positions(&slices))?;
        let a = self.on_device(&x, cols)?;
        self.programs.run(&op::rope(&a, &at, &rope_table, &a, core_set.cores(self)), true)?;
        let down = rows.div_ceil(SIDE);
        let table = (SIDE * 2 * dim * size_of::<f32>()) as u64;
        self.expected.read = a.bytes() + at.bytes() + down as u64 * table;
        self.expected.written = a.bytes();
        self.expect_indices(at.bytes(), down * heads, core_set);
        let units = (down * heads) as u32;
        let rows_of = |(_, first, count): (_, u32, u32)| {
            (first + count - 1) / heads as u32 - first / heads as u32 + 1
        };
        let runs = core_set.cores(self).for_work(units).split(units);
        let again = u64::from(runs.map(rows_of).sum::<u32>()) - down as u64;
        self.expected.overhead(
            CostKind::Read,
            again * table,
            "table rows for heads of a row of tiles that are computed in parallel",
        );
        if dim == SIDE {
            self.expected.overhead(
                CostKind::CoreToCore,
                a.bytes(),
                "exchanging the halves of heads of one tile",
            );
        }
        let mut reference = self.on_cpu(&x, cols)?;
        self.cpu.rope(&mut reference, &slices, &rope)?;
        Ok(Outcome::near(&a.read()?, &self.of_cpu(&reference, rows * cols)?))
    }
}
