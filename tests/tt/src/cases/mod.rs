//! The cases: every kernel in every configuration, compared with the CPU backend on the values that
//! the device was given.

mod argmax;
mod attend;
mod cost;
mod drafter;
mod head_ops;
mod matmul;
mod model;
mod outcome;
mod row_ops;
mod sequence;
mod suite;
mod trace;
mod transfer;
mod write_kv;

use muse_core::Result;
use muse_core::contract::{Backend, WeightView};
use muse_core::quant::Format;
use muse_core::quant::tile::{SIDE, TileFormat};
use muse_cpu::{Buf, Cpu, CpuOptions};
use muse_tt::{Cores, Device, Matrix, Programs};

use cost::TILE_PRODUCT;
pub use cost::{CostKind, CostReport, ExpectedCost};
pub use outcome::Outcome;

use crate::lane::Requirement;

type Run = Box<dyn Fn(&mut Harness) -> Result<Outcome>>;

/// A kernel in a configuration.
pub struct Case {
    /// Operation, size and cores.
    pub name: String,
    /// Whether CI runs it in a slow simulator.
    pub quick: bool,
    /// What its lane must be able to do.
    pub requirement: Requirement,
    /// Whether it has an expected cost. Cases that run the programs of other cases several times
    /// have none.
    pub has_cost: bool,
    run: Run,
}

/// The device and the reference of a case.
pub struct Harness {
    programs: Programs,
    cpu: Cpu,
    /// The expected cost of the case.
    expected: ExpectedCost,
}

impl Case {
    /// Runs it on a device, and measures its cost if `count` is set.
    ///
    /// # Errors
    /// Those of the device.
    pub fn run(&self, device: &Device, count: bool) -> Result<(Outcome, Option<CostReport>)> {
        let cpu = cpu()?;
        let programs =
            if count { Programs::with_cost_counter(device)? } else { Programs::new(device) };
        let mut harness = Harness { programs, cpu, expected: ExpectedCost::default() };
        let outcome = (self.run)(&mut harness)?;
        let (cost, expected) = (harness.programs.cost()?, harness.expected);
        Ok((outcome, cost.map(|cost| CostReport { cost, expected })))
    }

    /// The same without an expected cost.
    fn without_cost(self) -> Self {
        Self { has_cost: false, ..self }
    }
}

/// The reference.
fn cpu() -> Result<Cpu> {
    Ok(Cpu::new(CpuOptions { threads: Some(1) })?.exact())
}

/// Fills buffers before a case writes to them, so that missing and excess writes show.
const CANARY: f32 = -77.0;

/// The cores that a case uses: one, a row, or the whole grid.
#[derive(Clone, Copy, Debug)]
enum CoreSet {
    One,
    Row,
    Grid,
}

impl CoreSet {
    const ALL: [Self; 3] = [Self::One, Self::Row, Self::Grid];

    fn cores(self, harness: &Harness) -> Cores {
        let (columns, rows) = harness.programs.device().grid();
        match self {
            Self::One => Cores::grid(1, 1),
            Self::Row => Cores::grid(columns, 1),
            Self::Grid => Cores::grid(columns, rows),
        }
    }

    /// How many of them are busy with `units` units of work.
    fn busy(self, harness: &Harness, units: usize) -> u64 {
        u64::from(self.cores(harness).count()).min(units as u64)
    }
}

/// All cases.
pub fn all() -> Vec<Case> {
    let single =
        || model::cases().chain(drafter::cases()).chain(suite::cases()).chain(transfer::cases());
    let kinds = |core_set| {
        let sequences = write_kv::cases(core_set).chain(attend::cases(core_set));
        row_ops::cases(core_set)
            .chain(matmul::cases(core_set))
            .chain(head_ops::cases(core_set))
            .chain(sequences)
            .chain(argmax::cases(core_set))
            .chain(trace::cases(core_set))
    };
    CoreSet::ALL.into_iter().flat_map(kinds).chain(single()).collect()
}

fn case(
    name: &str,
    rows: usize,
    cols: usize,
    core_set: CoreSet,
    quick: bool,
    requirement: Requirement,
    run: impl Fn(&mut Harness) -> Result<Outcome> + 'static,
) -> Case {
    let core_set = format!("{core_set:?}").to_lowercase();
    let name = format!("{name}/{rows}x{cols}/{core_set}");
    Case { name, quick, requirement, has_cost: true, run: Box::new(run) }
}

/// Deterministic values, about normally distributed, rounded to BF16.
fn values(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        // Xorshift has no pattern that could hide a wrong layout.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as f32 / u32::MAX as f32 - 0.5
    };
    let normal = (0..count).map(|_| (next() + next() + next() + next()) * 2.0);
    normal.map(|x| half::bf16::from_f32(x).to_f32()).collect()
}

/// Tiles of a matrix, padding included.
fn tiles(rows: usize, cols: usize) -> usize {
    rows.div_ceil(SIDE) * cols.div_ceil(SIDE)
}

impl Harness {
    /// Expects `units` units of work, for which each core reads `bytes` of indices.
    fn expect_indices(&mut self, bytes: u64, units: usize, core_set: CoreSet) {
        self.expected.cores = core_set.busy(self, units);
        self.expected.overhead(
            CostKind::Read,
            (self.expected.cores - 1) * bytes,
            "indices for each core",
        );
    }

    fn on_device(&self, values: &[f32], cols: usize) -> Result<Matrix> {
        Matrix::from_values(self.programs.device(), TileFormat::Bf16, values, cols)
    }

    /// A matrix of canaries.
    fn fresh(&self, rows: usize, cols: usize) -> Result<Matrix> {
        self.on_device(&vec![CANARY; rows * cols], cols)
    }

    fn on_cpu(&self, values: &[f32], cols: usize) -> Result<Buf> {
        let mut buf = self.cpu.alloc(values.len() / cols, cols)?;
        self.cpu.write(&mut buf, 0, values)?;
        Ok(buf)
    }

    fn of_cpu(&self, buf: &Buf, count: usize) -> Result<Vec<f32>> {
        let mut out = vec![0.0; count];
        self.cpu.read(buf, 0, &mut out)?;
        Ok(out)
    }

    fn weight(&self, values: &[f32], cols: usize) -> Result<<Cpu as Backend>::Weight> {
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        let (rows, format) = (values.len() / cols, Format::F32);
        self.cpu.load(WeightView { name: "w", format, rows, cols, bytes: bytes.into() })
    }
}
