//! A Tenstorrent device as a [`Backend`]: operations of the model over the plans of [`crate::op`].

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use muse_core::contract::{
    Attention, Backend, KvShape, PageCopy, PickRow, Picked, Place, Rope, Sampling, Token,
    WeightView,
};
use muse_core::model::Mix;
use muse_core::quant::Format;
use muse_core::quant::tile::TileFormat;
use muse_core::{Error, Result, sampler};

use crate::cache::WeightCache;
use crate::cores::Cores;
use crate::device::{Device, DeviceOptions, open_shim};
use crate::matrix::{Ids, Matrix, Table};
use crate::op::{self, Binary, Rotations, Unary};
use crate::pages::{KvPages, positions, slots};
use crate::program::{Plan, Programs};
use crate::segments::Segments;
use crate::smoke::smoke;
use crate::weight::{Layout, Weight};

/// How a device is used.
#[derive(Clone, Copy, Debug)]
pub struct TtOptions {
    /// How it is opened.
    pub device: DeviceOptions,
    /// Formats of the matrices; none keeps all in BF16.
    pub mix: Option<Mix>,
    /// Positions that are rotated, from 0.
    pub positions: usize,
}

/// A Tenstorrent device. Buffers hold BF16, and operations on rows compute whole tiles of 32: what
/// stands in the rows behind those named, up to a whole tile, is not kept.
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
    /// Opens the shim of this build and a device, and tries a product on it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] in a build without the feature `tt`, [`Error::Device`] when the
    /// device does not answer or multiplies wrongly.
    pub fn open(options: TtOptions) -> Result<Self> {
        let tt = Self::on(&Device::open(open_shim()?, options.device)?, options);
        smoke(&tt.device, &mut tt.state().programs)?;
        Ok(tt)
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

impl Backend for Tt {
    type Buf = Activations;
    type Weight = Loaded;
    type Kv = KvPages;

    fn alloc(&self, rows: usize, cols: usize) -> Result<Activations> {
        // There are models without taps, but no buffers without bytes.
        let (real, cols) = (rows.max(1), cols.max(1));
        let matrix = Matrix::of(&self.device, TileFormat::Bf16, &vec![0.0; real * cols], cols)?;
        Ok(Activations { matrix, rows })
    }

    fn write(&self, buf: &mut Activations, first_row: usize, data: &[f32]) -> Result<()> {
        let (rows, cols) = buf.matrix.shape();
        assert!(data.len().is_multiple_of(cols), "{} values are rows of {cols}", data.len());
        if data.len() == rows * cols {
            return buf.matrix.write(data);
        }
        let mut all = buf.matrix.read()?;
        all[first_row * cols..][..data.len()].copy_from_slice(data);
        buf.matrix.write(&all)
    }

    fn read(&self, buf: &Activations, first_row: usize, out: &mut [f32]) -> Result<()> {
        let cols = buf.matrix.shape().1;
        assert!(out.len().is_multiple_of(cols), "{} values are rows of {cols}", out.len());
        out.copy_from_slice(&buf.matrix.read()?[first_row * cols..][..out.len()]);
        Ok(())
    }

    fn copy(
        &self,
        from: &Activations,
        rows: &[u32],
        to: &mut Activations,
        first_row: usize,
        first_col: usize,
    ) -> Result<()> {
        assert!(rows.iter().all(|row| (*row as usize) < from.rows), "rows of the source");
        if rows.is_empty() {
            return Ok(());
        }
        self.copy_rows(&from.matrix, rows, &to.matrix, (first_row, first_col))
    }

    fn load(&self, weight: WeightView<'_>) -> Result<Loaded> {
        let Some(format) = self.format(weight.name) else {
            let table = Table::of(&self.device, &weight.to_f32(), weight.cols)?;
            return Ok(Loaded::Rows(table));
        };
        let layout = Layout { format, rows: weight.rows, cols: weight.cols };
        if let Some(cache) = &self.cache {
            let bytes = cache.read(weight.name, layout)?;
            return Ok(Loaded::Product(Weight::of_bytes(&self.device, layout, &bytes)?));
        }
        let mut bytes = Vec::with_capacity(layout.bytes());
        layout.encode_all(&weight).for_each(|column| bytes.extend(column));
        Ok(Loaded::Product(Weight::of_bytes(&self.device, layout, &bytes)?))
    }

    fn weight_bytes(&self, _: Format, rows: usize, cols: usize) -> u64 {
        // Nothing is known of the name here: the widest format bounds the others.
        TileFormat::Bf16.matrix_bytes(rows, cols) as u64
    }

    fn alloc_kv(&self, shape: KvShape) -> Result<KvPages> {
        KvPages::new(&self.device, shape)
    }

    fn copy_pages(&self, kv: &mut KvPages, copies: &[PageCopy]) -> Result<()> {
        let group = kv.group();
        let mut pages = Vec::new();
        for copy in copies.iter().filter(|copy| copy.group == group) {
            pages.clear();
            kv.save(copy.from, &mut pages)?;
            kv.load(copy.to, &pages)?;
        }
        Ok(())
    }

    fn save_page(&self, kv: &KvPages, page: u32, out: &mut Vec<u8>) -> Result<()> {
        kv.save(page, out)
    }

    fn load_page(&self, kv: &mut KvPages, page: u32, bytes: &mut &[u8]) -> Result<()> {
        let wanted = kv.page_bytes();
        let Some((own, rest)) = bytes.split_at_checked(wanted) else {
            return Err(Error::Corrupt(format!(
                "{} bytes of a saved page, expected {wanted}: it was saved by another model or \
                 device; delete the saved pages",
                bytes.len()
            )));
        };
        kv.load(page, own)?;
        *bytes = rest;
        Ok(())
    }

    fn embed(
        &self,
        table: &Loaded,
        ids: &[Token],
        out: &mut Activations,
        first_row: usize,
    ) -> Result<()> {
        let Loaded::Rows(table) = table else { panic!("only {EMBEDDING} is gathered from") };
        assert!(first_row + ids.len() <= out.rows, "rows of the embedding's output");
        let numbers: Vec<u32> = ids.iter().map(|token| token.0).collect();
        assert!(numbers.iter().all(|id| (*id as usize) < table.rows()), "tokens of the vocabulary");
        let (numbers, count) = (Ids::of(&self.device, &numbers)?, ids.len() as u32);
        // The kernel writes whole tiles, and rows of others may share them.
        let gathered = Matrix::new(&self.device, TileFormat::Bf16, ids.len(), table.cols())?;
        self.run(&op::embed(table, &numbers, count, &gathered, self.cores))?;
        let rows: Vec<u32> = (0..count).collect();
        self.copy_rows(&gathered, &rows, &out.matrix, (first_row, 0))
    }

    fn linear(
        &self,
        x: &Activations,
        rows: usize,
        into: &mut [(&Loaded, &mut Activations)],
    ) -> Result<()> {
        let x = x.matrix.top(rows);
        for (weight, out) in into {
            let Loaded::Product(weight) = weight else { panic!("{EMBEDDING} is not multiplied") };
            self.run(&op::matmul(&x, weight, &out.matrix.top(rows), self.cores))?;
        }
        Ok(())
    }

    fn rms_norm(
        &self,
        x: &Activations,
        rows: usize,
        weight: Option<&Activations>,
        eps: f32,
        out: &mut Activations,
    ) -> Result<()> {
        let (x, out) = (x.matrix.top(rows), out.matrix.top(rows));
        let weight = weight.map(|weight| &weight.matrix);
        self.run(&op::rms_norm(&x, weight, eps, &out, self.cores))
    }

    fn head_norm(
        &self,
        x: &mut Activations,
        rows: usize,
        weight: &Activations,
        eps: f32,
    ) -> Result<()> {
        let x = x.matrix.top(rows);
        self.run(&op::head_norm(&x, &weight.matrix, eps, &x, self.cores))
    }

    fn rope(&self, x: &mut Activations, places: &[Place<'_>], rope: &Rope) -> Result<()> {
        let at = Ids::of(&self.device, &positions(places))?;
        let end = places.iter().map(|place| place.start as usize + place.rows).max().unwrap_or(0);
        let known = self.options.positions;
        assert!(end <= known, "position {end}, the device was opened for {known}");
        let x = x.matrix.top(total_rows(places));
        let mut state = self.state();
        let State { programs, rotations } = &mut *state;
        let rotations = match rotations.entry((rope.head_dim, rope.theta.to_bits())) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(room) => room.insert(Rotations::new(&self.device, rope, known)?),
        };
        programs.run(&op::rope(&x, &at, rotations, &x, self.cores), true)
    }

    fn write_kv(
        &self,
        kv: &mut KvPages,
        places: &[Place<'_>],
        k: &Activations,
        v: &Activations,
    ) -> Result<()> {
        let rows = total_rows(places);
        let at = Ids::of(&self.device, &slots(places, kv.group()))?;
        self.run(&op::write_kv(&k.matrix.top(rows), &v.matrix.top(rows), &at, kv, self.cores))
    }

    fn attend(
        &self,
        q: &Activations,
        kv: &KvPages,
        places: &[Place<'_>],
        attention: &Attention,
        out: &mut Activations,
    ) -> Result<()> {
        let Attention { heads, head_dim, scale, mask } = *attention;
        assert_eq!((head_dim, q.matrix.shape().1), (kv.head_dim(), heads * head_dim), "heads");
        let rows = total_rows(places);
        // Programs are compiled for the room that there is: powers of two are few.
        let room = Segments::count(places, mask, op::PIECE_PAGES).next_power_of_two();
        let mut segments = Segments::new(&self.device, room, op::PIECE_PAGES)?;
        segments.write(places, kv.group(), mask)?;
        let (q, out) = (q.matrix.top(rows), out.matrix.top(rows));
        let partials = op::attend_partials(&q, kv, &segments)?;
        let plans = op::attend(&q, kv, &segments, &partials, scale, &out, self.cores);
        plans.iter().take(1 + usize::from(segments.has_pieces())).try_for_each(|p| self.run(p))
    }

    fn gate(&self, x: &mut Activations, rows: usize, gate: &Activations) -> Result<()> {
        self.on_two(Binary::Gate, x, rows, gate)
    }

    fn silu_mul(&self, gate: &mut Activations, rows: usize, up: &Activations) -> Result<()> {
        self.on_two(Binary::SiluMul, gate, rows, up)
    }

    fn add(&self, x: &mut Activations, rows: usize, y: &Activations) -> Result<()> {
        self.on_two(Binary::Add, x, rows, y)
    }

    fn scale_cap(
        &self,
        x: &mut Activations,
        rows: usize,
        scale: f32,
        cap: Option<f32>,
    ) -> Result<()> {
        let x = x.matrix.top(rows);
        let operation = cap.map_or(Unary::Scale(scale), |cap| Unary::Cap { scale, cap });
        self.run(&op::unary(operation, &x, &x, self.cores))
    }

    fn pick(
        &self,
        scores: &Activations,
        rows: &[PickRow<'_>],
        out: &mut Vec<Picked>,
    ) -> Result<()> {
        let Some(end) = rows.iter().map(|row| row.row + 1).max() else { return Ok(()) };
        if rows.iter().all(is_largest) {
            let columns = self.largest(scores, end)?;
            let token = |row: &PickRow<'_>| Token(columns[row.row]);
            let picked = |row| Picked { token: token(row), logprob: 0.0, top: Vec::new() };
            out.extend(rows.iter().map(picked));
            return Ok(());
        }
        let (all, cols) = (scores.matrix.read()?, scores.matrix.shape().1);
        out.extend(rows.iter().map(|row| sampler::pick(&all[row.row * cols..][..cols], row)));
        Ok(())
    }
}

/// Whether the largest score is all that is asked for.
fn is_largest(row: &PickRow<'_>) -> bool {
    let Sampling { temperature, seed, .. } = *row.sampling;
    let plain = Sampling { temperature, seed, ..Sampling::default() };
    temperature == 0.0 && *row.sampling == plain && row.mask.is_none() && row.logprobs.is_none()
}

fn total_rows(places: &[Place<'_>]) -> usize {
    places.iter().map(|place| place.rows).sum()
}
