//! Products with weights.

use muse_core::Result;
use muse_core::contract::Backend;
use muse_core::quant::tile::TileFormat;
use muse_tt::{Weight, op};

use crate::lane::Needs;

use super::{Bench, Case, Least, On, Outcome, TILE_PRODUCT, case, values};

/// Products: rows, depth, columns.
pub(super) fn cases(on: On) -> impl Iterator<Item = Case> {
    let small = [(32, 32, 32), (32, 64, 128), (64, 128, 96)];
    let large = [(32, 256, 256), (32, 1024, 512), (32, 6656, 512)];
    let bf16 = small.map(|shape| (shape, TileFormat::Bf16));
    let blocks = [TileFormat::Bf16, TileFormat::Bfp8, TileFormat::Bfp4]
        .map(|format| large.map(|shape| (shape, format)));
    // Several rounds over the weight, and the depth of the published feed-forward.
    let long = [((2048, 256, 512), TileFormat::Bfp8), ((32, 19_968, 64), TileFormat::Bfp4)];
    bf16.into_iter().chain(blocks.into_iter().flatten()).chain(long).map(
        move |((rows, deep, cols), format)| {
            let quick = deep == 32 && matches!(on, On::One);
            let name = format!("matmul_{}/{deep}", format.name().to_lowercase());
            let needs = match format.bfp() {
                Some(_) => Needs::Blocks,
                None if deep > 128 => Needs::Speed,
                None => Needs::Little,
            };
            case(&name, rows, cols, on, quick, needs, move |bench| {
                bench.matmul(rows, deep, cols, format, on)
            })
        },
    )
}

impl Bench {
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
        let weight = Weight::of(device, format, &w, deep)?;
        let (a, out) = (self.on_device(&x, deep)?, self.fresh(rows, cols)?);
        let plan = op::matmul(&a, &weight, &out, on.cores(self));
        self.programs.run(&plan, true)?;
        let cores = plan.cores();
        let rounds = a.tile_shape().0.div_ceil(op::height(&a, &weight, on.cores(self)));
        self.least = Least {
            read: u64::from(rounds) * weight.layout().bytes() as u64 + a.bytes(),
            written: out.bytes(),
            between: if cores > 1 { cores * a.bytes() } else { 0 },
            multiply_adds: out.tile_count() * (deep / 32) as u64 * TILE_PRODUCT,
        };
        // What the device was given, not what it was made from.
        let tiles = format.tilize_transposed(&w, deep);
        let turned = format.untilize(&tiles, deep, cols);
        let held: Vec<f32> = (0..cols * deep).map(|i| turned[i % deep * cols + i / deep]).collect();
        let (held, mut want) = (self.weight(&held, deep)?, self.cpu.alloc(rows, cols)?);
        self.cpu.linear(&self.on_cpu(&x, deep)?, rows, &mut [(&held, &mut want)])?;
        Ok(Outcome::near(&out.read()?, &self.of_cpu(&want, rows * cols)?))
    }
}
