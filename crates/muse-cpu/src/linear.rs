//! Matrix products: splits them into tasks of weight rows and, for weights that are read in place,
//! of activation rows.

use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use muse_core::Result;

use crate::aligned::{Aligned, bytes_of};
use crate::buf::{Buf, Storage, Weight};
use crate::kernels::Kernels;
use crate::layout::Layout;
use crate::pool::Pool;
use crate::quant::{
    ActivationFormat, MAX_TILE_ROWS, PANEL_ROWS, PackedFormat, PanelGemm, PanelKernels, tile_rows,
    unpacked_bytes,
};
use crate::split::{Matrix, chunks};

/// Output columns of a task of a weight that is read in place: enough work to be worth scheduling,
/// few enough to balance the threads.
const TASK_COLS: usize = 32;
/// Activation rows of such a task; they should fit the second-level cache.
const TASK_ROWS: usize = 32;
/// Output columns of a task of a weight that is decoded first.
const DECODED_COLS: usize = 8;
/// Tasks per thread that a packed weight is split into, and the largest number of panels of a task.
const TASKS_PER_THREAD: usize = 16;
const MAX_TASK_PANELS: usize = 8;
/// Rows of a batch from which panels are unpacked once for all of them.
const MIN_UNPACK_ROWS: usize = 96;
/// Products from which the work is shared among threads.
const MIN_SHARED_PRODUCTS: usize = 1 << 19;
/// Values from which quantizing activations is shared among threads.
const MIN_SHARED_VALUES: usize = 1 << 15;
/// Weights whose tasks are run together.
const MAX_JOINT_WEIGHTS: usize = 4;

/// `y = x Wᵀ`, with buffers that are kept between calls.
#[derive(Default)]
pub(crate) struct Linear {
    /// One for each of the calls that ran at the same time.
    workspaces: Mutex<Vec<Workspace>>,
}

/// The buffers of a call.
struct Workspace {
    /// Activations in each format of [`ActivationFormat::ALL`].
    activations: [Aligned<i32>; ActivationFormat::ALL.len()],
    /// One per thread.
    weights: Vec<Mutex<WeightBuffers>>,
}

/// Unpacked or decoded weights of a task.
struct WeightBuffers {
    unpacked: Aligned<u8>,
    decoded: Aligned<f32>,
}

/// What the tasks of a call share.
struct Call<'a> {
    kernels: &'a Kernels,
    threads: usize,
    x: &'a Buf,
    rows: usize,
    workspace: &'a Workspace,
}

impl Linear {
    /// `y = x Wᵀ` for each weight and output.
    pub(crate) fn run(
        &self,
        pool: &Pool,
        kernels: &Kernels,
        x: &Buf,
        rows: usize,
        into: &mut [(&Weight, &mut Buf)],
    ) -> Result<()> {
        for (weight, y) in &*into {
            let (n, k) = weight.shape();
            assert_eq!((x.cols(), y.cols()), (k, n), "widths of input and output of {weight:?}");
        }
        let spare = self.workspaces().pop();
        let mut workspace = spare.map_or_else(|| Workspace::new(pool.threads()), Ok)?;
        workspace.prepare(kernels, pool, x, rows, into)?;
        let call = Call { kernels, threads: pool.threads(), x, rows, workspace: &workspace };
        for into in into.chunks_mut(MAX_JOINT_WEIGHTS) {
            call.run(pool, into);
        }
        self.workspaces().push(workspace);
        Ok(())
    }

    fn workspaces(&self) -> MutexGuard<'_, Vec<Workspace>> {
        // Pushing and popping leave the list valid even if a thread panics with the lock.
        self.workspaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Workspace {
    fn new(threads: usize) -> Result<Self> {
        let buffers = |_| {
            let (unpacked, decoded) = (Aligned::zeroed(0)?, Aligned::zeroed(0)?);
            Ok(Mutex::new(WeightBuffers { unpacked, decoded }))
        };
        let weights = (0..threads).map(buffers).collect::<Result<_>>()?;
        let [a, b, c, d] = [const { 0 }; ActivationFormat::ALL.len()].map(Aligned::zeroed);
        Ok(Self { activations: [a?, b?, c?, d?], weights })
    }

    /// Converts the activations to the formats that the weights need, and allocates the buffers for
    /// unpacked and decoded weights.
    fn prepare(
        &mut self,
        kernels: &Kernels,
        pool: &Pool,
        x: &Buf,
        rows: usize,
        into: &[(&Weight, &mut Buf)],
    ) -> Result<()> {
        let k = x.cols();
        for (format, words) in ActivationFormat::ALL.into_iter().zip(&mut self.activations) {
            let needs = |weight: &Weight| match weight.storage() {
                Storage::Packed(packed, ..) => packed.activations == format,
                _ => false,
            };
            if !into.iter().any(|(weight, _)| needs(weight)) {
                continue;
            }
            let width = format.words(k);
            words.reserve(rows * width)?;
            let x = x.rows(0..rows);
            let in_full_tiles = rows / MAX_TILE_ROWS * MAX_TILE_ROWS;
            let shared_rows = if x.len() < MIN_SHARED_VALUES { 0 } else { in_full_tiles };
            let (shared, rest) = words[..rows * width].split_at_mut(shared_rows * width);
            chunks(pool, shared, MAX_TILE_ROWS * width, |i, words| {
                let x = &x[i * MAX_TILE_ROWS * k..][..MAX_TILE_ROWS * k];
                format.write(kernels, x, k, words);
            });
            for (first, n) in tiles(shared_rows..rows) {
                let words = &mut rest[(first - shared_rows) * width..][..n * width];
                format.write(kernels, &x[first * k..][..n * k], k, words);
            }
        }
        for buffers in &mut self.weights {
            let buffers = buffers.get_mut().unwrap_or_else(PoisonError::into_inner);
            for (weight, _) in into {
                match weight.storage() {
                    Storage::Packed(packed, kernels, _)
                        if rows >= MIN_UNPACK_ROWS && kernels.unpacked.is_some() =>
                    {
                        let bytes = unpacked_bytes(packed.activations.k_chunk(k));
                        buffers.unpacked.reserve(bytes)?;
                    }
                    Storage::DecodeFirst(_) => buffers.decoded.reserve(DECODED_COLS * k)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Weight buffers that no other task uses: there are as many as threads.
    fn weight_buffers(&self) -> MutexGuard<'_, WeightBuffers> {
        loop {
            for buffers in &self.weights {
                match buffers.try_lock() {
                    Ok(buffers) => return buffers,
                    Err(TryLockError::Poisoned(buffers)) => return buffers.into_inner(),
                    Err(TryLockError::WouldBlock) => {}
                }
            }
        }
    }

    /// The words of the activations in a format.
    fn words(&self, format: ActivationFormat) -> &[i32] {
        let index = ActivationFormat::ALL.iter().position(|known| *known == format);
        &self.activations[index.expect("`ALL` has every format")]
    }
}

impl Call<'_> {
    /// Runs the tasks of up to [`MAX_JOINT_WEIGHTS`] weights together: on the pool, or on this
    /// thread if they are small.
    fn run(&self, pool: &Pool, into: &mut [(&Weight, &mut Buf)]) {
        let mut parts: [Option<(&Weight, Matrix<'_, f32>)>; MAX_JOINT_WEIGHTS] =
            [const { None }; MAX_JOINT_WEIGHTS];
        let (mut tasks, mut products) = (0, 0);
        for (part, (weight, y)) in parts.iter_mut().zip(into) {
            let (n, k) = weight.shape();
            *part = Some((weight, Matrix::new(y.rows_mut(0..self.rows), n)));
            tasks += self.tasks(weight);
            products += n * k * self.rows;
        }
        let task = |mut task: usize| {
            for (weight, y) in parts.iter().flatten() {
                let own = self.tasks(weight);
                if task < own {
                    return self.task(weight, y, task);
                }
                task -= own;
            }
            unreachable!("a task of these weights");
        };
        if products < MIN_SHARED_PRODUCTS {
            (0..tasks).for_each(task);
        } else {
            pool.run(tasks, &task);
        }
    }

    /// Panels of a task of a packed weight `[n, k]`.
    fn panels_per_task(&self, packed: &PackedFormat, (n, k): (usize, usize)) -> usize {
        let (tasks, max) = match self.prefetches_panels(packed, k) {
            true => (TASKS_PER_THREAD / 2, 2 * MAX_TASK_PANELS),
            false => (TASKS_PER_THREAD, MAX_TASK_PANELS),
        };
        (n.div_ceil(PANEL_ROWS) / (self.threads * tasks)).clamp(1, max)
    }

    /// Whether to prefetch the next panel while one is multiplied: where quants take at least a
    /// byte each, reading a panel from memory takes about as long as multiplying it with a full
    /// tile, and should overlap with that.
    fn prefetches_panels(&self, packed: &PackedFormat, k: usize) -> bool {
        let rows = MAX_TILE_ROWS..MIN_UNPACK_ROWS;
        rows.contains(&self.rows) && packed.panel_bytes(k) >= PANEL_ROWS * k
    }

    fn tasks(&self, weight: &Weight) -> usize {
        let (n, _) = weight.shape();
        match weight.storage() {
            Storage::InPlace(..) => n.div_ceil(TASK_COLS) * self.rows.div_ceil(TASK_ROWS),
            Storage::DecodeFirst(_) => n.div_ceil(DECODED_COLS),
            Storage::Packed(packed, ..) => {
                n.div_ceil(PANEL_ROWS * self.panels_per_task(packed, weight.shape()))
            }
        }
    }

    /// Runs a task of a weight. No two tasks write the same output columns of the same rows.
    fn task(&self, weight: &Weight, y: &Matrix<'_, f32>, task: usize) {
        let (n, k) = weight.shape();
        match weight.storage() {
            Storage::InPlace(layout, bytes) => {
                // Consecutive tasks have the same columns, so that their weights stay in the cache.
                let tasks_per_cols = self.rows.div_ceil(TASK_ROWS);
                let col = task / tasks_per_cols * TASK_COLS;
                let row = task % tasks_per_cols * TASK_ROWS;
                let (cols, rows) = (TASK_COLS.min(n - col), TASK_ROWS.min(self.rows - row));
                let bytes = weight.file_rows(bytes, col..col + cols);
                self.multiply_in_place(*layout, bytes, k, row, rows, y, col, cols);
            }
            Storage::DecodeFirst(bytes) => {
                let col = task * DECODED_COLS;
                let cols = DECODED_COLS.min(n - col);
                let mut buffers = self.workspace.weight_buffers();
                let values = &mut buffers.decoded[..cols * k];
                weight.format().decode(weight.file_rows(bytes, col..col + cols), values);
                let bytes = bytes_of(&buffers.decoded[..cols * k]);
                for row in (0..self.rows).step_by(TASK_ROWS) {
                    let rows = TASK_ROWS.min(self.rows - row);
                    self.multiply_in_place(Layout::F32, bytes, k, row, rows, y, col, cols);
                }
            }
            Storage::Packed(format, kernels, bytes) => {
                let packed = PackedWeight { format, kernels, bytes, n, k };
                let panels = self.panels_per_task(format, (n, k));
                let panels = task * panels..((task + 1) * panels).min(n.div_ceil(PANEL_ROWS));
                for panel in panels.clone() {
                    self.multiply_panel(&packed, panel, panel + 1 < panels.end, y);
                }
            }
        }
    }

    /// Multiplies `rows` rows of `x` with `cols` stored weight rows.
    fn multiply_in_place(
        &self,
        layout: Layout,
        bytes: &[u8],
        k: usize,
        row: usize,
        rows: usize,
        y: &Matrix<'_, f32>,
        col: usize,
        cols: usize,
    ) {
        let mut tile = [0.0; TASK_COLS * TASK_ROWS];
        let tile = &mut tile[..rows * cols];
        (self.kernels.gemm(layout))(self.x.rows(row..row + rows), bytes, k, tile);
        for (r, values) in tile.chunks_exact(cols).enumerate() {
            // SAFETY: no other task writes these columns of these rows, and the part ends with this
            // iteration.
            let y = unsafe { y.part(row + r, col, cols) };
            y.copy_from_slice(values);
        }
    }

    /// Multiplies all rows of `x` with one panel, chunk after chunk of K. The activations of a
    /// small batch stay in the cache while panels come from memory; those of a large batch come
    /// from the third-level cache, or from memory, for each panel again. `more` says whether the
    /// task goes on with the next panel.
    fn multiply_panel(
        &self,
        packed: &PackedWeight<'_>,
        panel: usize,
        more: bool,
        y: &Matrix<'_, f32>,
    ) {
        let large_batch = self.rows >= MIN_UNPACK_ROWS;
        let mut buffers = None;
        for chunk in packed.format.activations.k_chunks(packed.k) {
            let mut weights = packed.chunk(panel, &chunk);
            let mut gemm = packed.kernels.packed;
            if let Some((unpack, unpacked_gemm)) = packed.kernels.unpacked.filter(|_| large_batch) {
                let buffers = &mut **buffers.get_or_insert_with(|| self.workspace.weight_buffers());
                let unpacked = &mut buffers.unpacked[..unpacked_bytes(chunk.len())];
                unpack(weights, unpacked);
                (weights, gemm) = (unpacked, unpacked_gemm);
            }
            let following = match more && self.prefetches_panels(packed.format, packed.k) {
                true => packed.following(panel, &chunk),
                false => &[],
            };
            for tile in tiles(0..self.rows) {
                let next = match large_batch {
                    true => {
                        // Scales and sums are few, so that the hardware prefetcher suffices.
                        let tile = self.next_tile(tile);
                        let words = tile.1 * packed.format.activations.quant_words(chunk.len());
                        bytes_of(&self.activations(packed, &chunk, tile)[..words])
                    }
                    false => {
                        let share = |row: usize| following.len() * row / self.rows;
                        &following[share(tile.0)..share(tile.0 + tile.1)]
                    }
                };
                self.multiply_tile(packed, gemm, weights, panel, &chunk, tile, next, y);
            }
        }
    }

    /// A chunk of K of a tile of activations, in the format that the weight needs.
    #[inline]
    fn activations(
        &self,
        packed: &PackedWeight<'_>,
        chunk: &Range<usize>,
        (first, n): (usize, usize),
    ) -> &[i32] {
        let format = packed.format.activations;
        let start = first * format.words(packed.k) + n * format.words(chunk.start);
        &self.workspace.words(format)[start..][..n * format.words(chunk.len())]
    }

    /// The tile of rows after one; after the last tile the first one, for the next panel.
    fn next_tile(&self, (first, n): (usize, usize)) -> (usize, usize) {
        let first = (first + n) % self.rows;
        (first, tile_rows(self.rows - first))
    }

    /// Multiplies a tile of rows with a chunk of K of a panel. The first chunk sets the output, the
    /// others add to it.
    fn multiply_tile(
        &self,
        packed: &PackedWeight<'_>,
        gemm: PanelGemm,
        weights: &[u8],
        panel: usize,
        chunk: &Range<usize>,
        (first, n): (usize, usize),
        next: &[u8],
        y: &Matrix<'_, f32>,
    ) {
        let x = self.activations(packed, chunk, (first, n));
        let (col, cols) = (panel * PANEL_ROWS, PANEL_ROWS.min(packed.n - panel * PANEL_ROWS));
        // SAFETY: no other task has this panel, whose rows are these columns, and each use below
        // ends before the next begins.
        let y = |r: usize| unsafe { y.part(first + r, col, cols) };
        let mut out = [[0.0; PANEL_ROWS]; MAX_TILE_ROWS];
        let out = &mut out[..n];
        if chunk.start > 0 {
            for (r, out) in out.iter_mut().enumerate() {
                out[..cols].copy_from_slice(y(r));
            }
        }
        gemm(weights, chunk.len(), x, next, out);
        for (r, out) in out.iter().enumerate() {
            match <&mut [f32; PANEL_ROWS]>::try_from(y(r)) {
                Ok(y) => *y = *out,
                Err(_) => y(r).copy_from_slice(&out[..cols]),
            }
        }
    }
}

/// A packed weight `[n, k]`.
struct PackedWeight<'a> {
    format: &'a PackedFormat,
    kernels: &'a PanelKernels,
    bytes: &'a [u8],
    n: usize,
    k: usize,
}

impl PackedWeight<'_> {
    /// A chunk of K of a panel.
    fn chunk(&self, panel: usize, chunk: &Range<usize>) -> &[u8] {
        let bytes = |k| self.format.panel_bytes(k);
        let panel = &self.bytes[panel * bytes(self.k)..][..bytes(self.k)];
        &panel[bytes(chunk.start)..bytes(chunk.end)]
    }

    /// The bytes after a chunk, as many as the chunk has or as there are.
    fn following(&self, panel: usize, chunk: &Range<usize>) -> &[u8] {
        let bytes = |k| self.format.panel_bytes(k);
        let following = &self.bytes[panel * bytes(self.k) + bytes(chunk.end)..];
        &following[..following.len().min(bytes(chunk.len()))]
    }
}

/// First row and number of rows of the tiles that rows are split into.
fn tiles(rows: Range<usize>) -> impl Iterator<Item = (usize, usize)> {
    let mut first = rows.start;
    std::iter::from_fn(move || {
        let n = tile_rows(rows.end - first);
        first += n;
        (n > 0).then_some((first - n, n))
    })
}

impl fmt::Debug for Linear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Linear")
    }
}
