//! Products with weights.

use muse_core::Result;
use muse_core::contract::Backend;
use muse_core::quant::tile::{SIDE, TileFormat};
use muse_tt::{Weight, op};

use crate::lane::Requirement;

use super::{Case, CoreSet, CostKind, Harness, Outcome, TILE_PRODUCT, case, values};

/// M, K, N; the format of the weight; and how often one core, a row and the grid read the weight:
/// more than once where the sums of all rows do not fit into a core.
type Product = ((usize, usize, usize), TileFormat, [u64; 3]);

const ONCE: [u64; 3] = [1; 3];

/// Products for slow simulators, those of the published model and of its drafter, one that fills
/// all cores, and one whose sums do not fit into a core.
pub(super) fn cases(core_set: CoreSet) -> impl Iterator<Item = Case> {
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
        let quick = deep == 160 && matches!(core_set, CoreSet::One);
        let name = format!("matmul_{}/{deep}", format.name().to_lowercase());
        let requirement = match format.bfp() {
            Some(_) => Requirement::BlockFloat,
            None if deep * cols > 1 << 14 => Requirement::Speed,
            None => Requirement::Basic,
        };
        case(&name, rows, cols, core_set, quick, requirement, move |harness| {
            harness.matmul(product, core_set)
        })
    })
}

impl Harness {
    fn matmul(&mut self, product: Product, core_set: CoreSet) -> Result<Outcome> {
        let ((rows, deep, cols), format, rounds) = product;
        let (x, w) = (values(rows * deep, 7), values(cols * deep, 8));
        let device = self.programs.device();
        let weight = Weight::from_values(device, format, &w, deep)?;
        let (a, out) = (self.on_device(&x, deep)?, self.fresh(rows, cols)?);
        self.programs.run(&op::matmul(&a, &weight, &out, core_set.cores(self)), true)?;
        let bytes = weight.layout().bytes() as u64;
        (self.expected.read, self.expected.written) = (bytes + a.bytes(), out.bytes());
        self.expected.products = out.tile_count() * deep.div_ceil(SIDE) as u64 * TILE_PRODUCT;
        self.expected.cores = core_set.busy(self, cols.div_ceil(SIDE));
        let again = (rounds[core_set as usize] - 1) * bytes;
        self.expected.overhead(CostKind::Read, again, "the weight for each round of rows");
        if self.expected.cores > 1 {
            let sent = self.expected.cores * a.bytes();
            self.expected.overhead(
                CostKind::CoreToCore,
                sent,
                "the multicast of x, which is read from DRAM once",
            );
        }
        // The reference uses the values of the encoded weight.
        let tiles = format.tilize_transposed(&w, deep);
        let transposed = format.untilize(&tiles, deep, cols);
        let stored: Vec<f32> =
            (0..cols * deep).map(|i| transposed[i % deep * cols + i / deep]).collect();
        let (stored, mut reference) = (self.weight(&stored, deep)?, self.cpu.alloc(rows, cols)?);
        self.cpu.linear(&self.on_cpu(&x, deep)?, rows, &mut [(&stored, &mut reference)])?;
        Ok(Outcome::near(&out.read()?, &self.of_cpu(&reference, rows * cols)?))
    }
}
