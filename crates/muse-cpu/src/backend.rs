//! [`Backend`] on the CPU: checks shapes, cuts operations into tasks, leaves loops to kernels.

use std::ops::Range;
use std::thread::available_parallelism;

use muse_core::contract::{
    Attention, Backend, BlockCopy, KvShape, Rope, SampleRow, Sampled, SeqSlice, TensorInfo, Token,
    WeightView,
};
use muse_core::{Error, Result, sampler};

use crate::attend::Attend;
use crate::buf::{Buf, Weight};
use crate::kernels::elementwise::Pairs;
use crate::kernels::{Isa, Kernels};
use crate::kv::Kv;
use crate::linear::Linear;
use crate::pool::Pool;
use crate::rotary::Rotary;
use crate::split::chunks;

/// Elements from which on an element-wise operation is worth sharing among threads.
const SHARED_VALUES: usize = 1 << 16;
/// Elements of a shared task.
const CHUNK: usize = 1 << 12;
/// Products from which on attention is worth sharing.
const SHARED_PRODUCTS: usize = 1 << 18;

/// More would only be a mistake.
const MOST_THREADS: usize = 4096;

/// How the CPU is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuOptions {
    /// Threads that share the work, the caller's included; none means one a core.
    pub threads: Option<usize>,
}

/// The CPU as a device.
#[derive(Debug)]
pub struct Cpu {
    pool: Pool,
    isa: Isa,
    kernels: Kernels,
    linear: Linear,
    rotary: Rotary,
    exact: bool,
}

/// [`Error::Invalid`] for numbers of threads that cannot work.
pub(crate) fn check_threads(threads: usize) -> Result<()> {
    if (1..=MOST_THREADS).contains(&threads) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "{threads} threads cannot share the work: ask for 1 to {MOST_THREADS}, best one a core"
    )))
}

impl Cpu {
    /// Takes the CPU into use, with the best instruction set it has.
    ///
    /// # Errors
    /// [`Error::Invalid`] for zero threads, [`Error::Exhausted`] when threads cannot be started.
    pub fn new(options: CpuOptions) -> Result<Self> {
        Self::with_isa(options, Isa::best())
    }

    /// The same with kernels of a chosen instruction set.
    ///
    /// # Errors
    /// As [`Cpu::new`].
    pub fn with_isa(options: CpuOptions, isa: Isa) -> Result<Self> {
        let threads =
            options.threads.unwrap_or_else(|| available_parallelism().map_or(1, usize::from));
        check_threads(threads)?;
        Ok(Self {
            pool: Pool::new(threads)?,
            isa,
            kernels: Kernels::new(isa),
            linear: Linear::default(),
            rotary: Rotary::default(),
            exact: false,
        })
    }

    /// The same with exact products: weights loaded from now on are multiplied with activations in
    /// full precision, whatever their format, where otherwise quantized weights meet activations
    /// of eight bits. Slower by far; it is what others are compared with.
    #[must_use]
    pub fn exact(self) -> Self {
        Self { exact: true, ..self }
    }

    /// Runs an element-wise operation on the first `rows` rows.
    fn pairs(&self, kernel: Pairs, x: &mut Buf, rows: usize, y: &Buf) {
        assert_eq!(x.cols(), y.cols(), "widths of the operands");
        let (x, y) = (x.rows_mut(0..rows), y.rows(0..rows));
        self.in_chunks(x, |range, x| kernel(x, &y[range]));
    }

    /// Runs `task` on chunks of `x` if there is enough of it, else on all.
    fn in_chunks(&self, x: &mut [f32], task: impl Fn(Range<usize>, &mut [f32]) + Sync) {
        let whole = x.len() / CHUNK * CHUNK;
        if x.len() < SHARED_VALUES {
            return task(0..x.len(), x);
        }
        let (x, rest) = x.split_at_mut(whole);
        chunks(&self.pool, x, CHUNK, |i, x| task(i * CHUNK..(i + 1) * CHUNK, x));
        task(whole..whole + rest.len(), rest);
    }

    /// Runs `task(row, values)` on every row of `x`.
    fn by_row(&self, x: &mut [f32], width: usize, task: impl Fn(usize, &mut [f32]) + Sync) {
        if x.len() < SHARED_VALUES {
            return x.chunks_exact_mut(width).enumerate().for_each(|(row, x)| task(row, x));
        }
        chunks(&self.pool, x, width, task);
    }
}

impl Backend for Cpu {
    type Buf = Buf;
    type Weight = Weight;
    type Kv = Kv;

    fn alloc(&self, rows: usize, cols: usize) -> Result<Buf> {
        Buf::zeroed(rows, cols)
    }

    fn write(&self, buf: &mut Buf, first_row: usize, data: &[f32]) -> Result<()> {
        let rows = whole_rows(data.len(), buf.cols());
        buf.rows_mut(first_row..first_row + rows).copy_from_slice(data);
        Ok(())
    }

    fn read(&self, buf: &Buf, first_row: usize, out: &mut [f32]) -> Result<()> {
        let rows = whole_rows(out.len(), buf.cols());
        out.copy_from_slice(buf.rows(first_row..first_row + rows));
        Ok(())
    }

    fn copy(
        &self,
        from: &Buf,
        rows: &[u32],
        to: &mut Buf,
        first_row: usize,
        first_col: usize,
    ) -> Result<()> {
        let (width, cols) = (to.cols(), first_col..first_col + from.cols());
        assert!(cols.end <= width, "columns {cols:?} of a buffer of width {width}");
        let to = to.rows_mut(first_row..first_row + rows.len());
        for (&row, to) in rows.iter().zip(to.chunks_exact_mut(width)) {
            let row = row as usize;
            to[cols.clone()].copy_from_slice(from.rows(row..row + 1));
        }
        Ok(())
    }

    fn load(&self, weight: WeightView<'_>) -> Result<Weight> {
        Weight::load(&weight, &self.pool, self.isa, self.exact)
    }

    fn weight_bytes(&self, tensor: &TensorInfo) -> u64 {
        let TensorInfo { format, rows, cols, .. } = *tensor;
        Weight::bytes_for(format, rows, cols, self.isa, self.exact) as u64
    }

    /// Memory that can be had without swapping, where the system tells (Linux).
    fn free_memory(&self) -> Result<Option<u64>> {
        Ok(available_memory())
    }

    fn alloc_kv(&self, shape: KvShape) -> Result<Kv> {
        Kv::zeroed(shape, self.kernels.pairs.is_some() && !self.exact)
    }

    fn copy_blocks(&self, kv: &mut Kv, copies: &[BlockCopy]) -> Result<()> {
        let group = kv.shape().group;
        copies.iter().filter(|copy| copy.group == group).for_each(|copy| kv.copy(copy));
        Ok(())
    }

    fn save_block(&self, kv: &Kv, page: u32, out: &mut Vec<u8>) -> Result<()> {
        kv.save(page, out);
        Ok(())
    }

    fn load_block(&self, kv: &mut Kv, page: u32, bytes: &mut &[u8]) -> Result<()> {
        kv.load(page, bytes)
    }

    fn embed(&self, table: &Weight, ids: &[Token], out: &mut Buf, first_row: usize) -> Result<()> {
        let (rows, cols) = table.shape();
        assert_eq!(cols, out.cols(), "width of the embedding and of its output");
        let out = out.rows_mut(first_row..first_row + ids.len());
        for (&Token(id), out) in ids.iter().zip(out.chunks_exact_mut(cols)) {
            let id = id as usize;
            assert!(id < rows, "token {id} of a vocabulary of {rows}");
            table.decode_row(id, out);
        }
        Ok(())
    }

    fn linear(&self, x: &Buf, rows: usize, into: &mut [(&Weight, &mut Buf)]) -> Result<()> {
        self.linear.run(&self.pool, &self.kernels, x, rows, into)
    }

    fn rms_norm(
        &self,
        x: &Buf,
        rows: usize,
        weight: Option<&Buf>,
        eps: f32,
        out: &mut Buf,
    ) -> Result<()> {
        let width = x.cols();
        assert_eq!(width, out.cols(), "widths of a norm's input and output");
        let weight = weight.map_or([].as_slice(), |weight| norm_weight(weight, width));
        let x = x.rows(0..rows);
        self.by_row(out.rows_mut(0..rows), width, |row, out| {
            out.copy_from_slice(&x[row * width..(row + 1) * width]);
            (self.kernels.norm)(out, weight, eps);
        });
        Ok(())
    }

    fn head_norm(&self, x: &mut Buf, rows: usize, weight: &Buf, eps: f32) -> Result<()> {
        let (width, head_dim) = (x.cols(), weight.cols());
        assert!(width.is_multiple_of(head_dim), "{width} columns are heads of {head_dim}");
        let weight = norm_weight(weight, head_dim);
        self.by_row(x.rows_mut(0..rows), width, |_, x| {
            for head in x.chunks_exact_mut(head_dim) {
                (self.kernels.norm)(head, weight, eps);
            }
        });
        Ok(())
    }

    fn rope(&self, x: &mut Buf, slices: &[SeqSlice<'_>], rope: &Rope) -> Result<()> {
        let (width, dim) = (x.cols(), rope.head_dim);
        assert!(dim.is_multiple_of(2), "a head of {dim} has pairs");
        assert!(width.is_multiple_of(dim), "{width} columns are heads of {dim}");
        let frequencies = self.rotary.frequencies(rope);
        self.by_row(x.rows_mut(0..SeqSlice::total_len(slices)), width, |row, x| {
            let (_, position) = locate(slices, row);
            (self.kernels.rotate)(x, position as f32, frequencies);
        });
        Ok(())
    }

    fn write_kv(&self, kv: &mut Kv, slices: &[SeqSlice<'_>], k: &Buf, v: &Buf) -> Result<()> {
        let shape = kv.shape();
        let (dim, width) = (shape.head_dim, shape.kv_heads * shape.head_dim);
        assert_eq!((k.cols(), v.cols()), (width, width), "widths of K and V rows");
        let rows = SeqSlice::total_len(slices);
        let mut rows = k.rows(0..rows).chunks_exact(width).zip(v.rows(0..rows).chunks_exact(width));
        for slice in slices {
            for position in slice.positions() {
                let (page, slot) = slice.blocks.slot(shape.group, position);
                let (k, v) = rows.next().expect("as many rows as positions");
                for (head, (k, v)) in k.chunks_exact(dim).zip(v.chunks_exact(dim)).enumerate() {
                    kv.write(page, head, slot, k, v);
                }
            }
        }
        Ok(())
    }

    fn attend(
        &self,
        q: &Buf,
        kv: &Kv,
        slices: &[SeqSlice<'_>],
        attention: &Attention,
        out: &mut Buf,
    ) -> Result<()> {
        let shape = kv.shape();
        let Attention { heads, head_dim, mask, .. } = *attention;
        assert_eq!(head_dim, shape.head_dim, "head widths of queries and of the cache");
        assert!(heads.is_multiple_of(shape.kv_heads), "{heads} heads over {}", shape.kv_heads);
        let width = heads * head_dim;
        assert_eq!((q.cols(), out.cols()), (width, width), "widths of queries and output");
        let rows = SeqSlice::total_len(slices);
        let keys = slices.iter().map(|slice| slice.len * mask.visible(slice, slice.start).len());
        let shared = keys.sum::<usize>() * width >= SHARED_PRODUCTS;
        let q = q.rows(0..rows);
        let call = Attend { kernels: &self.kernels, kv, attention, slices, q };
        call.run(shared.then_some(&self.pool), out.rows_mut(0..rows));
        Ok(())
    }

    fn gate(&self, x: &mut Buf, rows: usize, gate: &Buf) -> Result<()> {
        self.pairs(self.kernels.gate, x, rows, gate);
        Ok(())
    }

    fn silu_mul(&self, gate: &mut Buf, rows: usize, up: &Buf) -> Result<()> {
        self.pairs(self.kernels.silu_mul, gate, rows, up);
        Ok(())
    }

    fn add(&self, x: &mut Buf, rows: usize, y: &Buf) -> Result<()> {
        self.pairs(self.kernels.add, x, rows, y);
        Ok(())
    }

    fn scale_softcap(&self, x: &mut Buf, rows: usize, scale: f32, cap: Option<f32>) -> Result<()> {
        let cap = cap.unwrap_or(f32::INFINITY);
        self.in_chunks(x.rows_mut(0..rows), |_, x| (self.kernels.cap)(x, scale, cap));
        Ok(())
    }

    fn sample(&self, scores: &Buf, rows: &[SampleRow<'_>], out: &mut Vec<Sampled>) -> Result<()> {
        let first = out.len();
        let blank = Sampled { token: Token(0), logprob: 0.0, top: Vec::new() };
        out.resize(first + rows.len(), blank);
        chunks(&self.pool, &mut out[first..], 1, |i, picked| {
            let row = &rows[i];
            picked[0] = sampler::sample(scores.rows(row.row..row.row + 1), row);
        });
        Ok(())
    }
}

/// Bytes of memory that can be had without swapping. None where the system does not tell.
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn whole_rows(values: usize, cols: usize) -> usize {
    assert!(cols > 0 && values.is_multiple_of(cols), "{values} values are rows of {cols}");
    values / cols
}

/// The place that row `row` of all places belongs to, and its position.
fn locate<'a, 'p>(slices: &'a [SeqSlice<'p>], mut row: usize) -> (&'a SeqSlice<'p>, u32) {
    for slice in slices {
        if row < slice.len {
            return (slice, slice.start + row as u32);
        }
        row -= slice.len;
    }
    unreachable!("a row of these slices")
}

fn norm_weight(weight: &Buf, width: usize) -> &[f32] {
    assert_eq!(weight.cols(), width, "width of a norm's weight");
    weight.rows(0..1)
}
