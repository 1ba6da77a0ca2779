//! Matrix products, cut into bands of columns and blocks of rows.

use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use muse_core::Result;

use crate::aligned::Aligned;
use crate::buf::{Buf, Store, Weight};
use crate::kernels::Kernels;
use crate::layout::Layout;
use crate::pool::Pool;
use crate::quant::{self, Activations, Kind, MOST_ROWS, PANEL, expanded_bytes, tile_rows};
use crate::split::{Matrix, chunks};

/// Columns of a task of plain weights: enough work to be worth taking, few enough to share evenly.
const BAND: usize = 32;
/// Rows of a task of plain weights; their inputs should stay in the second-level cache.
const BLOCK: usize = 32;
/// Columns that are decoded at a time.
const DECODED: usize = 8;
/// Tasks a thread should find in a packed weight, and the most panels of one.
const TASKS: usize = 16;
const MOST_PANELS: usize = 8;
/// Rows from which on a panel is unpacked once for all of them.
const EXPANDED: usize = 96;
/// Products from which on the work is shared.
const SHARED_PRODUCTS: usize = 1 << 19;
/// Values from which on quantizing activations is shared.
const SHARED_VALUES: usize = 1 << 15;
/// Weights cut into tasks together.
const TOGETHER: usize = 4;

/// `y = x Wᵀ`, with memory that is kept between calls.
#[derive(Default)]
pub(crate) struct Linear {
    /// As many as there were calls at the same time.
    spaces: Mutex<Vec<Space>>,
}

/// The memory of a call.
struct Space {
    /// Activations in each of their forms.
    words: [Aligned<i32>; Activations::ALL.len()],
    /// One a thread.
    bands: Vec<Mutex<Band>>,
}

/// Unpacked weights.
struct Band {
    expanded: Aligned<u8>,
    decoded: Aligned<f32>,
}

/// What the tasks of a call share.
struct Call<'a> {
    kernels: &'a Kernels,
    threads: usize,
    x: &'a Buf,
    rows: usize,
    space: &'a Space,
}

impl Linear {
    /// `y = x Wᵀ` for each weight.
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
        let spare = self.spaces().pop();
        let mut space = spare.map_or_else(|| Space::new(pool.threads()), Ok)?;
        space.prepare(kernels, pool, x, rows, into)?;
        let call = Call { kernels, threads: pool.threads(), x, rows, space: &space };
        for into in into.chunks_mut(TOGETHER) {
            call.run(pool, into);
        }
        self.spaces().push(space);
        Ok(())
    }

    fn spaces(&self) -> MutexGuard<'_, Vec<Space>> {
        // Whoever panicked with the lock left whole spaces.
        self.spaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Space {
    fn new(threads: usize) -> Result<Self> {
        let band = |_| {
            let (expanded, decoded) = (Aligned::zeroed(0)?, Aligned::zeroed(0)?);
            Ok(Mutex::new(Band { expanded, decoded }))
        };
        let bands = (0..threads).map(band).collect::<Result<_>>()?;
        let [a, b, c] = [const { 0 }; Activations::ALL.len()].map(Aligned::zeroed);
        Ok(Self { words: [a?, b?, c?], bands })
    }

    /// Quantizes the activations as the weights want them and makes room for unpacked weights.
    fn prepare(
        &mut self,
        kernels: &Kernels,
        pool: &Pool,
        x: &Buf,
        rows: usize,
        into: &[(&Weight, &mut Buf)],
    ) -> Result<()> {
        let k = x.cols();
        for (form, words) in Activations::ALL.into_iter().zip(&mut self.words) {
            let wants = |weight: &Weight| matches!(weight.store(), Store::Packed(kind, ..) if kind.activations == form);
            if !into.iter().any(|(weight, _)| wants(weight)) {
                continue;
            }
            let width = form.words(k);
            words.reserve(rows * width)?;
            let x = x.rows(0..rows);
            let whole = if x.len() < SHARED_VALUES { 0 } else { rows / MOST_ROWS * MOST_ROWS };
            let (shared, rest) = words[..rows * width].split_at_mut(whole * width);
            chunks(pool, shared, MOST_ROWS * width, |i, words| {
                form.write(kernels, &x[i * MOST_ROWS * k..][..MOST_ROWS * k], k, words);
            });
            for (first, n) in tiles(whole..rows) {
                let words = &mut rest[(first - whole) * width..][..n * width];
                form.write(kernels, &x[first * k..][..n * k], k, words);
            }
        }
        for band in &mut self.bands {
            let band = band.get_mut().unwrap_or_else(PoisonError::into_inner);
            for (weight, _) in into {
                match weight.store() {
                    Store::Packed(..) if rows >= EXPANDED => {
                        band.expanded.reserve(expanded_bytes(k))?;
                    }
                    Store::Blocks(_) => band.decoded.reserve(DECODED * k)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// A band nobody uses: there is one for each thread.
    fn band(&self) -> MutexGuard<'_, Band> {
        loop {
            for band in &self.bands {
                match band.try_lock() {
                    Ok(band) => return band,
                    Err(TryLockError::Poisoned(band)) => return band.into_inner(),
                    Err(TryLockError::WouldBlock) => {}
                }
            }
        }
    }

    /// Activations in one of their forms.
    fn words(&self, form: Activations) -> &[i32] {
        let index = Activations::ALL.iter().position(|known| *known == form);
        &self.words[index.expect("every form has its words")]
    }
}

impl Call<'_> {
    /// All tasks of at most [`TOGETHER`] weights in one run of the pool, or on this thread where
    /// they are small.
    fn run(&self, pool: &Pool, into: &mut [(&Weight, &mut Buf)]) {
        let mut parts: [Option<(&Weight, Matrix<'_, f32>)>; TOGETHER] = [const { None }; TOGETHER];
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
        if products < SHARED_PRODUCTS {
            (0..tasks).for_each(task);
        } else {
            pool.run(tasks, &task);
        }
    }

    /// Panels of a task of a packed weight of `n` rows.
    fn panels(&self, n: usize) -> usize {
        (n.div_ceil(PANEL) / (self.threads * TASKS)).clamp(1, MOST_PANELS)
    }

    fn tasks(&self, weight: &Weight) -> usize {
        let (n, _) = weight.shape();
        match weight.store() {
            Store::Plain(..) => n.div_ceil(BAND) * self.rows.div_ceil(BLOCK),
            Store::Blocks(_) => n.div_ceil(DECODED),
            Store::Packed(..) => n.div_ceil(PANEL * self.panels(n)),
        }
    }

    /// Tasks of a weight have columns, or rows of these, of their own.
    fn task(&self, weight: &Weight, y: &Matrix<'_, f32>, task: usize) {
        let (n, k) = weight.shape();
        match weight.store() {
            Store::Plain(layout, bytes) => {
                // Blocks of one band follow each other: its weights stay in the cache.
                let blocks = self.rows.div_ceil(BLOCK);
                let (col, row) = (task / blocks * BAND, task % blocks * BLOCK);
                let (cols, rows) = (BAND.min(n - col), BLOCK.min(self.rows - row));
                let bytes = weight.file_rows(bytes, col..col + cols);
                self.plain(*layout, bytes, k, row, rows, y, col, cols);
            }
            Store::Blocks(bytes) => {
                let col = task * DECODED;
                let cols = DECODED.min(n - col);
                let mut band = self.space.band();
                let values = &mut band.decoded[..cols * k];
                weight.format().decode(weight.file_rows(bytes, col..col + cols), values);
                let bytes = &band.decoded.as_bytes()[..cols * k * size_of::<f32>()];
                for row in (0..self.rows).step_by(BLOCK) {
                    let rows = BLOCK.min(self.rows - row);
                    self.plain(Layout::F32, bytes, k, row, rows, y, col, cols);
                }
            }
            Store::Packed(kind, kernels, packed) => {
                let panels = self.panels(n);
                for panel in task * panels..((task + 1) * panels).min(n.div_ceil(PANEL)) {
                    self.panel(kind, kernels, packed, k, y, panel, n);
                }
            }
        }
    }

    /// `rows` rows of `x` with `cols` plain weight rows.
    fn plain(
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
        let mut tile = [0.0; BAND * BLOCK];
        let tile = &mut tile[..rows * cols];
        (self.kernels.linear(layout))(self.x.rows(row..row + rows), bytes, k, tile);
        for (r, values) in tile.chunks_exact(cols).enumerate() {
            // SAFETY: no other task has these columns of these rows.
            let y = unsafe { y.part(row + r, col, cols) };
            y.copy_from_slice(values);
        }
    }

    /// All rows of `x` with one panel.
    fn panel(
        &self,
        kind: &Kind,
        kernels: &quant::Kernels,
        packed: &[u8],
        k: usize,
        y: &Matrix<'_, f32>,
        panel: usize,
        n: usize,
    ) {
        let (col, width) = (panel * PANEL, kind.panel_bytes(k));
        let (cols, packed) = (PANEL.min(n - col), &packed[panel * width..][..width]);
        let (x, words) = (self.space.words(kind.activations), kind.activations.words(k));
        let mut band = None;
        let (rows, panel) = match kernels.expand {
            Some((expand, expanded)) if self.rows >= EXPANDED => {
                let band = &mut *band.insert(self.space.band());
                let room = &mut band.expanded[..expanded_bytes(k)];
                expand(packed, room);
                (expanded, &*room)
            }
            _ => (kernels.packed, packed),
        };
        let mut out = [[0.0; PANEL]; MOST_ROWS];
        for (first, n) in tiles(0..self.rows) {
            let out = &mut out[..n];
            rows(panel, k, &x[first * words..][..n * words], out);
            for (r, values) in out.iter().enumerate() {
                // SAFETY: no other task has these columns.
                let y = unsafe { y.part(first + r, col, cols) };
                match <&mut [f32; PANEL]>::try_from(&mut *y) {
                    Ok(y) => *y = *values,
                    Err(_) => y.copy_from_slice(&values[..cols]),
                }
            }
        }
    }
}

/// First row and length of the tiles that rows lie in.
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
