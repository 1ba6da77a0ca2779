//! The cases: every kernel in every configuration, and what it must come to. What is wanted is
//! computed by the CPU backend from the values that the device was given.

mod attend;
mod cache;
mod drafter;
mod heads;
mod matmul;
mod model;
mod outcome;
mod price;
mod rows;
mod sample;
mod sequence;
mod suite;
mod trace;
mod transfer;

use muse_core::Result;
use muse_core::contract::{Backend, WeightView};
use muse_core::quant::Format;
use muse_core::quant::tile::{SIDE, TileFormat};
use muse_cpu::{Buf, Cpu, CpuOptions};
use muse_tt::{Cores, Device, Matrix, Programs};

pub use outcome::Outcome;
use price::TILE_PRODUCT;
pub use price::{Due, Kind, Price};

use crate::lane::Needs;

type Run = Box<dyn Fn(&mut Bench) -> Result<Outcome>>;

/// A kernel in a configuration.
pub struct Case {
    /// Operation, size and cores.
    pub name: String,
    /// Whether it is one of those that CI runs in a slow simulator.
    pub quick: bool,
    /// What it needs of its lane.
    pub needs: Needs,
    /// Whether it says what it should cost. Those that run programs of others several times do not.
    pub counts: bool,
    run: Run,
}

/// What a case runs on.
pub struct Bench {
    programs: Programs,
    cpu: Cpu,
    /// What the case should cost.
    due: Due,
}

impl Case {
    /// Runs it on a device, and counts what it costs when asked to.
    ///
    /// # Errors
    /// Those of the device.
    pub fn run(&self, device: &Device, count: bool) -> Result<(Outcome, Option<Price>)> {
        let cpu = cpu()?;
        let programs = if count { Programs::counting(device)? } else { Programs::new(device) };
        let mut bench = Bench { programs, cpu, due: Due::default() };
        let outcome = (self.run)(&mut bench)?;
        let (cost, due) = (bench.programs.cost()?, bench.due);
        Ok((outcome, cost.map(|cost| Price { cost, due })))
    }

    /// The same, not saying what it should cost.
    fn uncounted(self) -> Self {
        Self { counts: false, ..self }
    }
}

/// What everything is compared with.
fn cpu() -> Result<Cpu> {
    Ok(Cpu::new(CpuOptions { threads: Some(1) })?.exact())
}

/// What lies where something may be written, or may not.
const CANARY: f32 = -77.0;

/// Which cores a case runs on: one, a row, or all that there are.
#[derive(Clone, Copy, Debug)]
enum On {
    One,
    Row,
    Grid,
}

impl On {
    const ALL: [Self; 3] = [Self::One, Self::Row, Self::Grid];

    fn cores(self, bench: &Bench) -> Cores {
        let (columns, rows) = bench.programs.device().grid();
        match self {
            Self::One => Cores::grid(1, 1),
            Self::Row => Cores::grid(columns, 1),
            Self::Grid => Cores::grid(columns, rows),
        }
    }

    /// How many of them have something to do when there are so many units of work.
    fn busy(self, bench: &Bench, units: usize) -> u64 {
        u64::from(self.cores(bench).count()).min(units as u64)
    }
}

/// All cases.
pub fn all() -> Vec<Case> {
    let alone =
        || model::cases().chain(drafter::cases()).chain(suite::cases()).chain(transfer::cases());
    let kinds = |on| {
        let heads = heads::cases(on).chain(cache::cases(on)).chain(attend::cases(on));
        rows::cases(on)
            .chain(matmul::cases(on))
            .chain(heads)
            .chain(sample::cases(on))
            .chain(trace::cases(on))
    };
    On::ALL.into_iter().flat_map(kinds).chain(alone()).collect()
}

fn case(
    name: &str,
    rows: usize,
    cols: usize,
    on: On,
    quick: bool,
    needs: Needs,
    run: impl Fn(&mut Bench) -> Result<Outcome> + 'static,
) -> Case {
    let on = format!("{on:?}").to_lowercase();
    let name = format!("{name}/{rows}x{cols}/{on}");
    Case { name, quick, needs, counts: true, run: Box::new(run) }
}

/// Values as a model has them, the same every time, in BF16.
fn values(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        // Xorshift: good enough to have no pattern that a wrong layout could hide in.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as f32 / u32::MAX as f32 - 0.5
    };
    let normal = (0..count).map(|_| (next() + next() + next() + next()) * 2.0);
    normal.map(|x| half::bf16::from_f32(x).to_f32()).collect()
}

/// Tiles that so many rows and columns fill, also in part.
fn tiles(rows: usize, cols: usize) -> usize {
    rows.div_ceil(SIDE) * cols.div_ceil(SIDE)
}

impl Bench {
    /// So many units of work, for which each core reads the numbers that say what to do.
    fn numbers_due(&mut self, bytes: u64, units: usize, on: On) {
        self.due.cores = on.busy(self, units);
        self.due.beyond(Kind::Read, (self.due.cores - 1) * bytes, "numbers for each core");
    }

    fn on_device(&self, values: &[f32], cols: usize) -> Result<Matrix> {
        Matrix::of(self.programs.device(), TileFormat::Bf16, values, cols)
    }

    fn fresh(&self, rows: usize, cols: usize) -> Result<Matrix> {
        // Not zeros, so that what is not written shows.
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
