//! The device: buffers, weights, KV blocks and the operations of the text model.

use std::ops::Range;

use super::sampling::{SampleRow, Sampled};
use super::sequence::{BlockCopy, KV_BLOCK_SIZE, KvGroup, SeqSlice, Token};
use super::weights::{TensorInfo, WeightView};
use crate::Result;
use crate::quant::Format;

/// A device that can run the model. Models are generic over it.
///
/// Buffers are row-major `f32` matrices. Operations work on the first `rows` rows unless they say
/// otherwise; operations on `slices` work on as many rows as all slices have positions, in their
/// order. Rows of a result behind those are undefined afterwards: a device may work on whole tiles.
/// Operations on no rows do nothing.
///
/// **Batch invariance.** The bits of a row never depend on which other rows run in the same call
/// or on how many threads run it: every reduction has one fixed order per device. Speculation,
/// batching, chunked prefill and prefix reuse rely on it to leave tokens unchanged.
///
/// # Panics
/// Operations panic when shapes do not fit; that is a bug in the caller.
///
/// # Errors
/// [`crate::Error::Device`] when the hardware fails, [`crate::Error::Exhausted`] from allocations.
pub trait Backend: Send + Sync + Sized + 'static {
    /// A matrix of activations, `f32 [rows, cols]`.
    type Buf: Send + Sync;
    /// A weight matrix in the device's layout.
    type Weight: Send + Sync;
    /// The K and V of one layer, in KV blocks.
    type Kv: Send;

    /// A zeroed matrix `[rows, cols]`.
    fn alloc(&self, rows: usize, cols: usize) -> Result<Self::Buf>;
    /// Copies `data` (whole rows) into `buf` from `first_row` on.
    fn write(&self, buf: &mut Self::Buf, first_row: usize, data: &[f32]) -> Result<()>;
    /// Copies whole rows of `buf` from `first_row` on into `out`.
    fn read(&self, buf: &Self::Buf, first_row: usize, out: &mut [f32]) -> Result<()>;
    /// Copies row `rows[i]` of `from` into row `first_row + i` of `to`, from column `first_col` on.
    /// `from` may be narrower than `to`.
    fn copy(
        &self,
        from: &Self::Buf,
        rows: &[u32],
        to: &mut Self::Buf,
        first_row: usize,
        first_col: usize,
    ) -> Result<()>;
    /// Loads a weight matrix `[rows, cols]` into the device's layout.
    fn load(&self, weight: WeightView<'_>) -> Result<Self::Weight>;
    /// Bytes that a weight matrix takes once it is loaded.
    fn weight_bytes(&self, tensor: &TensorInfo) -> u64 {
        tensor.format.bytes_for(tensor.rows * tensor.cols) as u64
    }
    /// Bytes of the device's memory that can be allocated now. None when the device cannot tell.
    fn free_memory(&self) -> Result<Option<u64>>;

    /// Zeroed KV blocks of one layer.
    fn alloc_kv(&self, shape: KvShape) -> Result<Self::Kv>;
    /// Copies the first positions of KV blocks of this store's group to other KV blocks.
    fn copy_blocks(&self, kv: &mut Self::Kv, copies: &[BlockCopy]) -> Result<()>;
    /// Appends the bytes of a KV block, K then V, as stored.
    fn save_block(&self, kv: &Self::Kv, block: u32, out: &mut Vec<u8>) -> Result<()>;
    /// Reads a KV block from the front of `bytes`, as [`Backend::save_block`] wrote it, and advances
    /// `bytes` past it. [`crate::Error::Corrupt`] when there are too few.
    fn load_block(&self, kv: &mut Self::Kv, block: u32, bytes: &mut &[u8]) -> Result<()>;

    /// `out[first_row + i] = table[ids[i]]`.
    fn embed(
        &self,
        table: &Self::Weight,
        ids: &[Token],
        out: &mut Self::Buf,
        first_row: usize,
    ) -> Result<()>;
    /// `y = x Wᵀ` for several weights that share an input: `x` `[rows, K]`, each `W` `[N, K]`,
    /// each `y` `[rows, N]`. The input is prepared once for all of them.
    fn linear(
        &self,
        x: &Self::Buf,
        rows: usize,
        into: &mut [(&Self::Weight, &mut Self::Buf)],
    ) -> Result<()>;
    /// `out = x / sqrt(mean(x²) + eps) · weight` for each row; `weight` is `[1, cols]`, none means
    /// ones.
    fn rms_norm(
        &self,
        x: &Self::Buf,
        rows: usize,
        weight: Option<&Self::Buf>,
        eps: f32,
        out: &mut Self::Buf,
    ) -> Result<()>;
    /// RMS norm of every head of `x` in place; a row is heads of `weight`'s width side by side.
    fn head_norm(&self, x: &mut Self::Buf, rows: usize, weight: &Self::Buf, eps: f32)
    -> Result<()>;
    /// Rotates every head of `x` in place by its position, pairs `(j, j + head_dim/2)`.
    fn rope(&self, x: &mut Self::Buf, slices: &[SeqSlice<'_>], rope: &Rope) -> Result<()>;
    /// Stores K and V rows `[rows, kv_heads · head_dim]` at their positions.
    fn write_kv(
        &self,
        kv: &mut Self::Kv,
        slices: &[SeqSlice<'_>],
        k: &Self::Buf,
        v: &Self::Buf,
    ) -> Result<()>;
    /// Softmax attention of `q` `[rows, heads · head_dim]` over the stored KV blocks into `out` of
    /// the same shape; query head `j` reads K/V head `j / (heads / kv_heads)`. K and V are read as
    /// stored, also those of the running rows, so that any chunking of a prompt gives the same bits.
    fn attend(
        &self,
        q: &Self::Buf,
        kv: &Self::Kv,
        slices: &[SeqSlice<'_>],
        attention: &Attention,
        out: &mut Self::Buf,
    ) -> Result<()>;
    /// `x = x · sigmoid(gate)`.
    fn gate(&self, x: &mut Self::Buf, rows: usize, gate: &Self::Buf) -> Result<()>;
    /// `gate = silu(gate) · up`.
    fn silu_mul(&self, gate: &mut Self::Buf, rows: usize, up: &Self::Buf) -> Result<()>;
    /// `x = x + y`.
    fn add(&self, x: &mut Self::Buf, rows: usize, y: &Self::Buf) -> Result<()>;
    /// `x = cap · tanh(x · scale / cap)`; no cap means `x = x · scale`.
    fn scale_softcap(
        &self,
        x: &mut Self::Buf,
        rows: usize,
        scale: f32,
        cap: Option<f32>,
    ) -> Result<()>;
    /// Samples a token for each of `rows`, on the device, so that logits need not cross a bus.
    /// Appends to `out` in order. [`crate::sampler::sample`] is the definition.
    fn sample(
        &self,
        logits: &Self::Buf,
        rows: &[SampleRow<'_>],
        out: &mut Vec<Sampled>,
    ) -> Result<()>;
}

/// How K and V rows are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvType {
    /// 4 bytes per value; for parity tests.
    F32,
    /// 2 bytes per value; the default.
    #[default]
    Bf16,
    /// 2 bytes per value.
    F16,
    /// Quant blocks of 32 values as in the Q8_0 weight format; `head_dim` must be a multiple of 32.
    Q8_0,
}

impl KvType {
    /// Bytes of `values` values, a whole number of quant blocks.
    pub const fn bytes_for(self, values: usize) -> usize {
        match self {
            Self::F32 => 4 * values,
            Self::Bf16 | Self::F16 => 2 * values,
            Self::Q8_0 => Format::Q8_0.bytes_for(values),
        }
    }
}

/// Shape of the KV blocks of one layer: K and V, each `[blocks, kv_heads, 64, head_dim]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// Which of a sequence's block lists addresses them.
    pub group: KvGroup,
    /// Number of KV blocks.
    pub blocks: usize,
    /// K/V heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Element type.
    pub kind: KvType,
}

impl KvShape {
    /// Bytes of one KV block, K and V.
    pub const fn block_bytes(&self) -> usize {
        2 * self.kv_heads * KV_BLOCK_SIZE * self.kind.bytes_for(self.head_dim)
    }
}

/// Rotary positions: `angle(j) = position · theta^(-2j / head_dim)`, `j < head_dim / 2`.
///
/// The frequencies are computed in `f64` and rounded to `f32` once; their product with the position
/// is `f32`, as in the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Width of a head.
    pub head_dim: usize,
    /// Base of the frequencies.
    pub theta: f32,
}

/// Geometry of an attention call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Factor on `q · k`.
    pub scale: f32,
    /// Which keys a query sees.
    pub mask: Mask,
}

/// Which key positions `p` a query at position `t` attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// `p <= t`, and `t - p < window` when there is one: the window counts the token itself.
    Causal {
        /// Width of the window.
        window: Option<u32>,
    },
    /// Every `p` before the end of the query's slice with `|t - p| <= reach`: the positions of a
    /// draft block attend to each other in both directions.
    DraftBlock {
        /// Largest distance, inclusive.
        reach: u32,
    },
}

impl Mask {
    /// Positions that a query at `t` of `slice` attends to.
    ///
    /// # Panics
    /// If the window is 0: it would exclude the query itself.
    pub fn visible(self, slice: &SeqSlice<'_>, t: u32) -> Range<u32> {
        match self {
            Self::Causal { window: None } => 0..t + 1,
            Self::Causal { window: Some(window) } => {
                assert!(window > 0, "a window of 0 excludes the query itself");
                (t + 1).saturating_sub(window)..t + 1
            }
            Self::DraftBlock { reach } => {
                let end = slice.positions().end;
                t.saturating_sub(reach)..end.min(t.saturating_add(reach).saturating_add(1))
            }
        }
    }
}
