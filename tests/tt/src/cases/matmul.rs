//! Products with weights.

use muse_core::Result;
use muse_core::contract::Backend;
use muse_core::quant::tile::{SIDE, TileFormat};
use muse_tt::{Weight, op};

use crate::lane::Needs;

use super::{Bench, Case, Kind, On, Outcome, TILE_PRODUCT, case, values};

/// Rows, depth, columns; how they are stored; and how often each set of cores reads the weight: more
/// than once where the sums of all rows have no room.
type Product = ((usize, usize, usize), TileFormat, [u64; 3]);

const ONCE: [u64; 3] = [1; 3];

/// Products for slow simulators, those of the published model and of its drafter, one that fills all
/// cores, and one with more rows than there is room for sums.
pub(super) fn cases(on: On) -> impl Iterator<Item = Case> {
    let (bf16, bfp8, bfp4) = (TileFormat::Bf16, TileFormat::Bfp8, TileFormat::Bfp4);
    let small = [(32, 32, 32), (32, 160, 32), (32, 64, 128), (64, 128, 96)];
    let large = [(32, 256, 256), (32, 1024, 512), (32, 6656, 512), (32, 256, 4160)];
    let small = small.into_iter().map(move |shape| (shape, bf16, ONCE));
    let large =
        large.into_iter().flat_map(move |shape| [bf16, bfp8, bfp4].map(|f| (shape, f, ONCE)));
    let deep: [Product; 3] = [
        ((32, 19_968, 64), bfp4, ONCE),
        ((32, 33_280, 64), bfp8, ONCE),
        ((2048, 256, 512), bfp8, [6, 3, 2]),
    ];
    small.chain(large).chain(deep).map(move |product| {
        let ((rows, deep, cols), format, _) = product;
        let quick = deep == 160 && matches!(on, On::One);
        let name = format!("matmul_{}/{deep}", format.name().to_lowercase());
        let needs = match format.bfp() {
            Some(_) => Needs::Blocks,
            None if deep * cols > 1 << 14 => Needs::Speed,
            None => Needs::Little,
        };
        case(&name, rows, cols, on, quick, needs, move |bench| bench.matmul(product, on))
    })
}

impl Bench {
    fn matmul(&mut self, product: Product, on: On) -> Result<Outcome> {
        let ((rows, deep, cols), format, rounds) = product;
        let (x, w) = (values(rows * deep, 7), values(cols * deep, 8));
        let device = self.programs.device();
        let weight = Weight::of(device, format, &w, deep)?;
        let (a, out) = (self.on_device(&x, deep)?, self.fresh(rows, cols)?);
        self.programs.run(&op::matmul(&a, &weight, &out, on.cores(self)), true)?;
        let bytes = weight.layout().bytes() as u64;
        (self.due.read, self.due.written) = (bytes + a.bytes(), out.bytes());
        self.due.products = out.tile_count() * deep.div_ceil(SIDE) as u64 * TILE_PRODUCT;
        self.due.cores = on.busy(self, cols.div_ceil(SIDE));
        let again = (rounds[on as usize] - 1) * bytes;
        self.due.beyond(Kind::Read, again, "a weight for rows whose sums have no room");
        if self.due.cores > 1 {
            let sent = self.due.cores * a.bytes();
            self.due.beyond(Kind::Between, sent, "rows for each core, which DRAM gives once");
        }
        // What the device was given, not what it was made from.
        let tiles = format.tilize_transposed(&w, deep);
        let turned = format.untilize(&tiles, deep, cols);
        let held: Vec<f32> = (0..cols * deep).map(|i| turned[i % deep * cols + i / deep]).collect();
        let (held, mut want) = (self.weight(&held, deep)?, self.cpu.alloc(rows, cols)?);
        self.cpu.linear(&self.on_cpu(&x, deep)?, rows, &mut [(&held, &mut want)])?;
        Ok(Outcome::near(&out.read()?, &self.of_cpu(&want, rows * cols)?))
    }
}
