//! Matrix products, cut into bands of columns and blocks of rows.

use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use muse_core::Result;

use crate::aligned::{Aligned, bytes_of};
use crate::buf::{Buf, Store, Weight};
use crate::kernels::Kernels;
use crate::layout::Layout;
use crate::pool::Pool;
use crate::quant::{self, Activations, Kind, MOST_ROWS, PANEL, Rows, expanded_bytes, tile_rows};
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
/// Rows from which on panels are unpacked once for all of them.
const MANY: usize = 96;
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
        let [a, b, c, d] = [const { 0 }; Activations::ALL.len()].map(Aligned::zeroed);
        Ok(Self { words: [a?, b?, c?, d?], bands })
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
                    Store::Packed(kind, kernels, _) if rows >= MANY && kernels.expand.is_some() => {
                        band.expanded.reserve(expanded_bytes(kind.activations.run(k)))?;
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

    /// Panels of a task of a packed weight `[n, k]`.
    fn panels(&self, kind: &Kind, (n, k): (usize, usize)) -> usize {
        let (tasks, most) =
            if self.fetches(kind, k) { (TASKS / 2, 2 * MOST_PANELS) } else { (TASKS, MOST_PANELS) };
        (n.div_ceil(PANEL) / (self.threads * tasks)).clamp(1, most)
    }

    /// Whether a panel is worth fetching while the one before is multiplied: where a number takes a
    /// byte at least, memory takes about as long as a full tile, and must not rest meanwhile.
    fn fetches(&self, kind: &Kind, k: usize) -> bool {
        (MOST_ROWS..MANY).contains(&self.rows) && kind.panel_bytes(k) >= PANEL * k
    }

    fn tasks(&self, weight: &Weight) -> usize {
        let (n, _) = weight.shape();
        match weight.store() {
            Store::Plain(..) => n.div_ceil(BAND) * self.rows.div_ceil(BLOCK),
            Store::Blocks(_) => n.div_ceil(DECODED),
            Store::Packed(kind, ..) => n.div_ceil(PANEL * self.panels(kind, weight.shape())),
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
                let bytes = bytes_of(&band.decoded[..cols * k]);
                for row in (0..self.rows).step_by(BLOCK) {
                    let rows = BLOCK.min(self.rows - row);
                    self.plain(Layout::F32, bytes, k, row, rows, y, col, cols);
                }
            }
            Store::Packed(kind, kernels, bytes) => {
                let packed = Packed { kind, kernels, bytes, n, k };
                let panels = self.panels(kind, (n, k));
                let panels = task * panels..((task + 1) * panels).min(n.div_ceil(PANEL));
                for panel in panels.clone() {
                    self.panel(&packed, panel, panel + 1 < panels.end, y);
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
            // SAFETY: `task` gives each task its own columns, or its own rows of them, and the part
            // ends with this turn of the loop.
            let y = unsafe { y.part(row + r, col, cols) };
            y.copy_from_slice(values);
        }
    }

    /// All rows of `x` with one panel, run after run. Few rows stay in the caches while panels come
    /// from memory; many come from the third level, or from memory, for each panel again.
    fn panel(&self, packed: &Packed<'_>, panel: usize, goes_on: bool, y: &Matrix<'_, f32>) {
        let mut band = None;
        for run in packed.kind.activations.runs(packed.k) {
            let mut part = packed.part(panel, &run);
            let mut rows = packed.kernels.packed;
            if let Some((expand, expanded)) = packed.kernels.expand.filter(|_| self.rows >= MANY) {
                let band = &mut **band.get_or_insert_with(|| self.space.band());
                let room = &mut band.expanded[..expanded_bytes(run.len())];
                expand(part, room);
                (part, rows) = (room, expanded);
            }
            let behind = match goes_on && self.fetches(packed.kind, packed.k) {
                true => packed.behind(panel, &run),
                false => &[],
            };
            for tile in tiles(0..self.rows) {
                let next = match self.rows >= MANY {
                    true => {
                        // Scales and sums are few, and follow by themselves.
                        let tile = self.tile_behind(tile);
                        let numbers = tile.1 * packed.kind.activations.numbers(run.len());
                        bytes_of(&self.x(packed, &run, tile)[..numbers])
                    }
                    false => {
                        let share = |row: usize| behind.len() * row / self.rows;
                        &behind[share(tile.0)..share(tile.0 + tile.1)]
                    }
                };
                self.add(packed, rows, part, panel, &run, tile, next, y);
            }
        }
    }

    /// A run of K of a tile of rows, as the weight wants it.
    fn x(&self, packed: &Packed<'_>, run: &Range<usize>, (first, n): (usize, usize)) -> &[i32] {
        let form = packed.kind.activations;
        let start = first * form.words(packed.k) + n * form.words(run.start);
        &self.space.words(form)[start..][..n * form.words(run.len())]
    }

    /// The tile of rows behind one; behind the last comes the first again, for the next panel.
    fn tile_behind(&self, (first, n): (usize, usize)) -> (usize, usize) {
        let first = (first + n) % self.rows;
        (first, tile_rows(self.rows - first))
    }

    /// Adds the products of a run of K of a tile of rows with a panel; the first run begins them.
    fn add(
        &self,
        packed: &Packed<'_>,
        rows: Rows,
        part: &[u8],
        panel: usize,
        run: &Range<usize>,
        (first, n): (usize, usize),
        next: &[u8],
        y: &Matrix<'_, f32>,
    ) {
        let x = self.x(packed, run, (first, n));
        let (col, cols) = (panel * PANEL, PANEL.min(packed.n - panel * PANEL));
        // SAFETY: `task` gives each task panels of its own, which are these columns, and each use
        // below ends before the next begins.
        let y = |r: usize| unsafe { y.part(first + r, col, cols) };
        let mut out = [[0.0; PANEL]; MOST_ROWS];
        let out = &mut out[..n];
        if run.start > 0 {
            for (r, out) in out.iter_mut().enumerate() {
                out[..cols].copy_from_slice(y(r));
            }
        }
        rows(part, run.len(), x, next, out);
        for (r, out) in out.iter().enumerate() {
            match <&mut [f32; PANEL]>::try_from(y(r)) {
                Ok(y) => *y = *out,
                Err(_) => y(r).copy_from_slice(&out[..cols]),
            }
        }
    }
}

/// A packed weight `[n, k]`.
struct Packed<'a> {
    kind: &'a Kind,
    kernels: &'a quant::Kernels,
    bytes: &'a [u8],
    n: usize,
    k: usize,
}

impl Packed<'_> {
    /// A run of K of a panel.
    fn part(&self, panel: usize, run: &Range<usize>) -> &[u8] {
        let bytes = |k| self.kind.panel_bytes(k);
        let panel = &self.bytes[panel * bytes(self.k)..][..bytes(self.k)];
        &panel[bytes(run.start)..bytes(run.end)]
    }

    /// What lies behind it, as much again if there is as much.
    fn behind(&self, panel: usize, run: &Range<usize>) -> &[u8] {
        let bytes = |k| self.kind.panel_bytes(k);
        let behind = &self.bytes[panel * bytes(self.k) + bytes(run.end)..];
        &behind[..behind.len().min(bytes(run.len()))]
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
