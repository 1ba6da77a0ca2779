//! A Tenstorrent device as a [`muse_core::contract::Backend`].

mod operations;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use muse_core::Result;
use muse_core::model::BfpPolicy;
use muse_core::quant::tile::TileFormat;

use crate::cache::WeightCache;
use crate::cores::Cores;
use crate::device::{Device, DeviceOptions, open_shim};
use crate::matrix::{Ids, Matrix, Table};
use crate::op::{self, Binary, Rotations};
use crate::program::{Plan, Programs};
use crate::weight::Weight;

/// How a device is used.
#[derive(Clone, Copy, Debug)]
pub struct TtOptions {
    /// How it is opened.
    pub device: DeviceOptions,
    /// Formats of the matrices; none keeps all in BF16.
    pub mix: Option<BfpPolicy>,
    /// Positions that are rotated, from 0.
    pub positions: usize,
}

/// A Tenstorrent device. Buffers hold BF16, and operations on rows compute whole tiles of 32: what
/// stands in the rows behind those named, up to a whole tile, is not kept. On no rows they do
/// nothing.
pub struct Tt {
    device: Device,
    cores: Cores,
    options: TtOptions,
    /// Where matrices lie that were converted before.
    cache: Option<WeightCache>,
    state: Mutex<State>,
}

/// What was compiled and computed for good.
struct State {
    programs: Programs,
    /// By the width of a head and the bits of theta.
    rotations: HashMap<(usize, u32), Rotations>,
}

/// A matrix of activations.
pub struct Activations {
    matrix: Matrix,
    rows: usize,
}

/// A matrix of the checkpoint, laid out for what it is used for.
pub enum Loaded {
    /// To multiply with.
    Product(Weight),
    /// To gather rows from: the embedding.
    Rows(Table),
}

/// The one matrix that rows are gathered from.
const EMBEDDING: &str = "token_embd.weight";

impl Tt {
    /// Opens the shim of this build and a device.
    ///
    /// # Errors
    /// Those of [`open_shim`] and [`Device::open`].
    pub fn open(options: TtOptions) -> Result<Self> {
        Ok(Self::on(&Device::open(open_shim()?, options.device)?, options))
    }

    /// On a device that is open.
    pub fn on(device: &Device, options: TtOptions) -> Self {
        let (columns, rows) = device.grid();
        let state = State { programs: Programs::new(device), rotations: HashMap::new() };
        let cores = Cores::grid(columns, rows);
        Self { device: device.clone(), cores, options, cache: None, state: Mutex::new(state) }
    }

    /// The same with matrices from a cache, which was filled by [`Tt::format`].
    #[must_use]
    pub fn with_cache(self, cache: WeightCache) -> Self {
        Self { cache: Some(cache), ..self }
    }

    /// What a matrix is kept as; none for the embedding, which is not multiplied with.
    pub fn format(&self, name: &str) -> Option<TileFormat> {
        let chosen = self.options.mix.and_then(|mix| mix.format(name));
        (name != EMBEDDING).then(|| chosen.unwrap_or(TileFormat::Bf16))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Programs and tables are added whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a plan to its end: numbers that it reads are freed after it.
    fn run(&self, plan: &Plan) -> Result<()> {
        self.state().programs.run(plan, true)
    }

    fn on_two(
        &self,
        operation: Binary,
        x: &Activations,
        rows: usize,
        y: &Activations,
    ) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        let (x, y) = (x.matrix.top(rows), y.matrix.top(rows));
        self.run(&op::binary(operation, &x, &y, &x, self.cores))
    }

    /// Rows that stand elsewhere on the device.
    fn copy_rows(
        &self,
        from: &Matrix,
        rows: &[u32],
        to: &Matrix,
        at: (usize, usize),
    ) -> Result<()> {
        let numbers = Ids::of(&self.device, rows)?;
        self.run(&op::copy(from, &numbers, rows.len() as u32, to, at, self.cores))
    }

    /// The columns of the largest scores of the first `rows` rows.
    fn largest(&self, scores: &Activations, rows: usize) -> Result<Vec<u32>> {
        let width = op::PARTIAL_NUMBERS * rows;
        let partials = Ids::in_pages(&self.device, self.cores.count() as usize, width)?;
        let columns = Ids::in_pages(&self.device, 1, rows)?;
        for plan in op::argmax(&scores.matrix, rows as u32, &partials, &columns, self.cores) {
            self.run(&plan)?;
        }
        columns.read()
    }
}
