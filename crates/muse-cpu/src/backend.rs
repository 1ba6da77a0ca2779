//! [`Backend`] on the CPU: checks shapes, splits operations into tasks for the threads, and calls
//! the kernels.

use std::ops::Range;
use std::thread::available_parallelism;

use muse_core::contract::{
    Attention, Backend, BlockCopy, KV_BLOCK_SIZE, KvShape, Rope, SampleRow, Sampled, SeqSlice,
    TensorInfo, Token, WeightView,
};
use muse_core::{Result, sampler};

use crate::attention::AttentionCall;
use crate::buf::{Buf, Weight};
use crate::kernels::elementwise::Binary;
use crate::kernels::{Isa, Kernels};
use crate::kv::Kv;
use crate::linear::Linear;
use crate::memory;
use crate::pool::{Pool, check_threads};
use crate::rope_frequencies::RopeFrequencies;
use crate::split::chunks;

/// Values from which an operation on rows or elements is shared among threads.
const MIN_SHARED_VALUES: usize = 1 << 16;
/// Values of a task of an elementwise operation.
const CHUNK: usize = 1 << 12;
/// Products from which attention is shared among threads.
pub(crate) const MIN_SHARED_PRODUCTS: usize = 1 << 18;

/// How the CPU is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuOptions {
    /// Threads that share the work, the calling thread included; `None` means one per core.
    pub threads: Option<usize>,
}

/// The CPU as a device. See the [crate documentation](crate) for an example.
#[derive(Debug)]
pub struct Cpu {
    pub(crate) pool: Pool,
    isa: Isa,
    pub(crate) kernels: Kernels,
    linear: Linear,
    pub(crate) rope_frequencies: RopeFrequencies,
    exact: bool,
}

impl Cpu {
    /// The CPU with kernels for the fastest instruction set that it has. Starts the threads.
    ///
    /// # Errors
    /// [`Error::Invalid`](muse_core::Error::Invalid) for zero threads or more than 4096,
    /// [`Error::Exhausted`](muse_core::Error::Exhausted) when the system starts no more threads.
    pub fn new(options: CpuOptions) -> Result<Self> {
        Self::with_isa(options, Isa::best())
    }

    /// The same with kernels for a chosen instruction set.
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
            rope_frequencies: RopeFrequencies::default(),
            exact: false,
        })
    }

    /// The same with exact products: weights and KV caches that are made from now on are multiplied
    /// with activations in single precision, whatever their format. Otherwise quantized weights are
    /// multiplied with activations of eight bits, and BF16 with BF16. It is much slower, and the
    /// reference that faster backends are compared with.
    #[must_use]
    pub fn exact(self) -> Self {
        Self { exact: true, ..self }
    }

    /// Runs an elementwise kernel on the first `rows` rows.
    fn elementwise(&self, kernel: Binary, x: &mut Buf, rows: usize, y: &Buf) {
        assert_eq!(x.cols(), y.cols(), "widths of the operands");
        let (x, y) = (x.rows_mut(0..rows), y.rows(0..rows));
        self.in_chunks(x, |range, x| kernel(x, &y[range]));
    }

    /// Runs `task` on chunks of `x` on the pool, or on all of `x` at once if it is small.
    fn in_chunks(&self, x: &mut [f32], task: impl Fn(Range<usize>, &mut [f32]) + Sync) {
        if x.len() < MIN_SHARED_VALUES {
            return task(0..x.len(), x);
        }
        let whole = x.len() / CHUNK * CHUNK;
        let (x, rest) = x.split_at_mut(whole);
        chunks(&self.pool, x, CHUNK, |i, x| task(i * CHUNK..(i + 1) * CHUNK, x));
        task(whole..whole + rest.len(), rest);
    }

    /// Runs `task(row, values)` on every row of `x`.
    pub(crate) fn by_row(
        &self,
        x: &mut [f32],
        width: usize,
        task: impl Fn(usize, &mut [f32]) + Sync,
    ) {
        if x.len() < MIN_SHARED_VALUES {
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

    /// Memory that can be allocated without swapping and within the limits of control groups; known
    /// on Linux.
    fn free_memory(&self) -> Result<Option<u64>> {
        Ok(memory::available())
    }

    fn alloc_kv(&self, shape: KvShape) -> Result<Kv> {
        Kv::zeroed(shape, self.kernels.attention_bf16.is_some() && !self.exact)
    }

    fn copy_blocks(&self, kv: &mut Kv, copies: &[BlockCopy]) -> Result<()> {
        let group = kv.shape().group;
        copies.iter().filter(|copy| copy.group == group).for_each(|copy| kv.copy(copy));
        Ok(())
    }

    fn save_block(&self, kv: &Kv, block: u32, out: &mut Vec<u8>) -> Result<()> {
        kv.save(block, out);
        Ok(())
    }

    fn load_block(&self, kv: &mut Kv, block: u32, bytes: &mut &[u8]) -> Result<()> {
        kv.load(block, bytes)
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
            (self.kernels.rms_norm)(out, weight, eps);
        });
        Ok(())
    }

    fn head_norm(&self, x: &mut Buf, rows: usize, weight: &Buf, eps: f32) -> Result<()> {
        let (width, head_dim) = (x.cols(), weight.cols());
        assert!(width.is_multiple_of(head_dim), "{width} columns of heads of {head_dim}");
        let weight = norm_weight(weight, head_dim);
        self.by_row(x.rows_mut(0..rows), width, |_, x| {
            for head in x.chunks_exact_mut(head_dim) {
                (self.kernels.rms_norm)(head, weight, eps);
            }
        });
        Ok(())
    }

    fn rope(&self, x: &mut Buf, slices: &[SeqSlice<'_>], rope: &Rope) -> Result<()> {
        let (width, dim) = (x.cols(), rope.head_dim);
        assert!(dim.is_multiple_of(2), "an odd head width {dim}");
        assert!(width.is_multiple_of(dim), "{width} columns of heads of {dim}");
        let frequencies = self.rope_frequencies.of(rope);
        self.by_row(x.rows_mut(0..SeqSlice::total_len(slices)), width, |row, x| {
            let position = position_of_row(slices, row);
            (self.kernels.rope)(x, position as f32, frequencies);
        });
        Ok(())
    }

    fn write_kv(&self, kv: &mut Kv, slices: &[SeqSlice<'_>], k: &Buf, v: &Buf) -> Result<()> {
        let shape = kv.shape();
        let width = shape.kv_heads * shape.head_dim;
        assert_eq!((k.cols(), v.cols()), (width, width), "widths of K and V rows");
        let rows = SeqSlice::total_len(slices);
        let (k, v, heads) = (k.rows(0..rows), v.rows(0..rows), kv.heads_mut());
        let write = |head: usize| {
            let mut row = 0;
            for slice in slices {
                let mut position = slice.start;
                while position < slice.positions().end {
                    let (block, slot) = slice.blocks.slot(shape.group, position);
                    let len =
                        (KV_BLOCK_SIZE - slot).min((slice.positions().end - position) as usize);
                    let run = row * width..(row + len) * width;
                    // SAFETY: a head of all KV blocks is written by one task alone.
                    unsafe {
                        heads.write(&self.kernels, block, head, slot, &k[run.clone()], &v[run]);
                    }
                    (row, position) = (row + len, position + len as u32);
                }
            }
        };
        if rows * width < MIN_SHARED_VALUES {
            (0..shape.kv_heads).for_each(write);
        } else {
            self.pool.run(shape.kv_heads, &write);
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
        assert_eq!(head_dim, shape.head_dim, "head widths of queries and of the KV cache");
        assert!(
            heads.is_multiple_of(shape.kv_heads),
            "{heads} query heads over {} K/V heads",
            shape.kv_heads
        );
        let width = heads * head_dim;
        assert_eq!((q.cols(), out.cols()), (width, width), "widths of queries and output");
        let rows = SeqSlice::total_len(slices);
        let keys = slices.iter().map(|slice| slice.len * mask.visible(slice, slice.start).len());
        let shared = keys.sum::<usize>() * width >= MIN_SHARED_PRODUCTS;
        let q = q.rows(0..rows);
        let call = AttentionCall { kernels: &self.kernels, kv, attention, slices, q };
        call.run(shared.then_some(&self.pool), out.rows_mut(0..rows));
        Ok(())
    }

    fn gate(&self, x: &mut Buf, rows: usize, gate: &Buf) -> Result<()> {
        self.elementwise(self.kernels.sigmoid_mul, x, rows, gate);
        Ok(())
    }

    fn silu_mul(&self, gate: &mut Buf, rows: usize, up: &Buf) -> Result<()> {
        self.elementwise(self.kernels.silu_mul, gate, rows, up);
        Ok(())
    }

    fn add(&self, x: &mut Buf, rows: usize, y: &Buf) -> Result<()> {
        self.elementwise(self.kernels.add, x, rows, y);
        Ok(())
    }

    fn scale_softcap(
        &self,
        x: &mut Buf,
        rows: usize,
        scale: f32,
        softcap: Option<f32>,
    ) -> Result<()> {
        let softcap = softcap.unwrap_or(f32::INFINITY);
        self.in_chunks(x.rows_mut(0..rows), |_, x| (self.kernels.softcap)(x, scale, softcap));
        Ok(())
    }

    fn sample(&self, logits: &Buf, rows: &[SampleRow<'_>], out: &mut Vec<Sampled>) -> Result<()> {
        let first = out.len();
        let blank = Sampled { token: Token(0), logprob: 0.0, top: Vec::new() };
        out.resize(first + rows.len(), blank);
        chunks(&self.pool, &mut out[first..], 1, |i, sampled| {
            let row = &rows[i];
            sampled[0] = sampler::sample(logits.rows(row.row..row.row + 1), row);
        });
        Ok(())
    }
}

fn whole_rows(values: usize, cols: usize) -> usize {
    assert!(cols > 0 && values.is_multiple_of(cols), "{values} values in rows of {cols}");
    values / cols
}

/// The position of row `row` of a batch.
fn position_of_row(slices: &[SeqSlice<'_>], mut row: usize) -> u32 {
    for slice in slices {
        if row < slice.len {
            return slice.start + row as u32;
        }
        row -= slice.len;
    }
    unreachable!("a row of these slices")
}

pub(crate) fn norm_weight(weight: &Buf, width: usize) -> &[f32] {
    assert_eq!(weight.cols(), width, "width of a norm's weight");
    weight.rows(0..1)
}
