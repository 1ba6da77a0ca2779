//! The [`muse_core::contract::Backend`] of a Tenstorrent device.

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
use crate::device::{Device, DeviceOptions};
use crate::matrix::{EmbeddingTable, IndexBuffer, Matrix};
use crate::op::{self, Binary, RopeTable};
use crate::open::open_shim;
use crate::plan::Plan;
use crate::program::Programs;
use crate::weight::Weight;

/// How a device is opened and used.
#[derive(Clone, Copy, Debug)]
pub struct TtOptions {
    /// How the device is opened.
    pub device: DeviceOptions,
    /// Formats of the weights; `None` keeps all in BF16.
    pub bfp_policy: Option<BfpPolicy>,
    /// Number of positions that rotary embedding supports, from 0.
    pub positions: usize,
}

/// A backend on a Tenstorrent device. Buffers are BF16. Operations compute whole tiles of 32 rows:
/// the rows behind the given ones, up to a whole tile, are overwritten with unspecified values.
/// Operations on zero rows do nothing.
pub struct Tt {
    device: Device,
    cores: Cores,
    options: TtOptions,
    /// Weights that were converted earlier.
    cache: Option<WeightCache>,
    state: Mutex<State>,
}

/// What is compiled and computed once.
struct State {
    programs: Programs,
    /// By the width of a head and the bits of theta.
    rope_tables: HashMap<(usize, u32), RopeTable>,
}

/// A matrix of activations.
pub struct Activations {
    matrix: Matrix,
    rows: usize,
}

/// A weight of the checkpoint, laid out for its use.
pub enum LoadedWeight {
    /// A matrix to multiply with.
    Matmul(Weight),
    /// The embedding, whose rows are gathered.
    Embedding(EmbeddingTable),
}

/// The name of the embedding.
const EMBEDDING: &str = "token_embd.weight";

impl Tt {
    /// Opens the shim of this build and a device of it.
    ///
    /// # Errors
    /// Those of [`open_shim`] and [`Device::open`].
    pub fn open(options: TtOptions) -> Result<Self> {
        Ok(Self::on(&Device::open(open_shim()?, options.device)?, options))
    }

    /// A backend on an open device.
    pub fn on(device: &Device, options: TtOptions) -> Self {
        let (columns, rows) = device.grid();
        let state = State { programs: Programs::new(device), rope_tables: HashMap::new() };
        let cores = Cores::grid(columns, rows);
        Self { device: device.clone(), cores, options, cache: None, state: Mutex::new(state) }
    }

    /// The same with weights from a cache that was filled with the formats of [`Tt::format`].
    #[must_use]
    pub fn with_cache(self, cache: WeightCache) -> Self {
        Self { cache: Some(cache), ..self }
    }

    /// The format of a weight; `None` for the embedding, which is a row-major table.
    pub fn format(&self, name: &str) -> Option<TileFormat> {
        let chosen = self.options.bfp_policy.and_then(|policy| policy.format(name));
        (name != EMBEDDING).then(|| chosen.unwrap_or(TileFormat::Bf16))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic leaves the maps consistent: entries are inserted complete.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a plan to its end, because buffers that it reads are freed afterwards.
    fn run(&self, plan: &Plan) -> Result<()> {
        self.state().programs.run(plan, true)
    }

    fn binary_in_place(
        &self,
        operation: Binary,
        x: &Activations,
        rows: usize,
        y: &Activations,
    ) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        let (x, y) = (x.matrix.first_rows(rows), y.matrix.first_rows(rows));
        self.run(&op::binary(operation, &x, &y, &x, self.cores))
    }

    /// Copies rows within the device.
    fn copy_rows(
        &self,
        from: &Matrix,
        rows: &[u32],
        to: &Matrix,
        at: (usize, usize),
    ) -> Result<()> {
        let indices = IndexBuffer::from_values(&self.device, rows)?;
        self.run(&op::copy(from, &indices, rows.len() as u32, to, at, self.cores))
    }

    /// The columns of the largest logits of the first `rows` rows.
    fn argmax(&self, logits: &Activations, rows: usize) -> Result<Vec<u32>> {
        let width = op::ARGMAX_PARTIAL_WORDS * rows;
        let partials = IndexBuffer::with_pages(&self.device, self.cores.count() as usize, width)?;
        let columns = IndexBuffer::with_pages(&self.device, 1, rows)?;
        for plan in op::argmax(&logits.matrix, rows as u32, &partials, &columns, self.cores) {
            self.run(&plan)?;
        }
        columns.read()
    }
}
