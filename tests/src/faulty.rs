//! A backend with one faulty operation: mistakes that no edited checkpoint can show, which the
//! goldens must notice.

use std::sync::Mutex;

use muse_core::Result;
use muse_core::contract::{
    Attention, Backend, BlockCopy, KvShape, Mask, Rope, SampleRow, Sampled, SeqSlice, TensorInfo,
    Token, WeightView,
};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// None: the backend as it is.
    Nothing,
    /// The attention gate reads the residual stream instead of the normed input.
    GateFromResidual,
    /// There is no attention gate.
    NoGate,
    /// Embeddings are not normed.
    RawEmbeddings,
    /// Embeddings are multiplied by this after their norm.
    ScaledEmbeddings(f32),
    /// Positions of a draft block attend to earlier ones only.
    CausalBlocks,
    /// Query head `j` reads K/V head `j % kv_heads` instead of `j / group`.
    StridedHeads {
        /// K/V heads.
        kv_heads: usize,
    },
}

/// A backend with a fault.
pub struct FaultyBackend<B: Backend> {
    inner: B,
    fault: Fault,
    hidden: usize,
    /// Input of the last weighted norm.
    residual: Mutex<Vec<f32>>,
}

impl<B: Backend> FaultyBackend<B> {
    /// Plants a fault into a backend, for a model of this hidden width.
    pub fn new(inner: B, fault: Fault, hidden: usize) -> Self {
        Self { inner, fault, hidden, residual: Mutex::default() }
    }

    /// The heads of `buf`'s rows in another order: new head `j` is old head `order(j)`.
    fn reorder(
        &self,
        buf: &mut B::Buf,
        rows: usize,
        attention: &Attention,
        order: impl Fn(usize) -> usize,
    ) -> Result<()> {
        let Attention { heads, head_dim, .. } = *attention;
        let mut values = vec![0.0; rows * heads * head_dim];
        self.inner.read(buf, 0, &mut values)?;
        let old = values.clone();
        for (new, old) in values.chunks_mut(heads * head_dim).zip(old.chunks(heads * head_dim)) {
            for (j, head) in new.chunks_mut(head_dim).enumerate() {
                head.copy_from_slice(&old[order(j) * head_dim..][..head_dim]);
            }
        }
        self.inner.write(buf, 0, &values)
    }
}

impl<B: Backend> Backend for FaultyBackend<B> {
    type Buf = B::Buf;
    type Weight = B::Weight;
    type Kv = B::Kv;

    fn rms_norm(
        &self,
        x: &B::Buf,
        rows: usize,
        weight: Option<&B::Buf>,
        eps: f32,
        out: &mut B::Buf,
    ) -> Result<()> {
        match (weight, self.fault) {
            (None, Fault::RawEmbeddings) => {
                let all: Vec<u32> = (0..rows as u32).collect();
                return self.inner.copy(x, &all, out, 0, 0);
            }
            (None, Fault::ScaledEmbeddings(factor)) => {
                self.inner.rms_norm(x, rows, weight, eps, out)?;
                return self.inner.scale_softcap(out, rows, factor, None);
            }
            (Some(_), Fault::GateFromResidual) => {
                let mut residual = self.residual.lock().expect("one thread");
                residual.resize(rows * self.hidden, 0.0);
                self.inner.read(x, 0, &mut residual)?;
            }
            _ => {}
        }
        self.inner.rms_norm(x, rows, weight, eps, out)
    }

    fn linear(
        &self,
        x: &B::Buf,
        rows: usize,
        into: &mut [(&B::Weight, &mut B::Buf)],
    ) -> Result<()> {
        self.inner.linear(x, rows, into)?;
        // Only attention has four: q, k, v and the gate.
        if let (Fault::GateFromResidual, [_, _, _, gate]) = (self.fault, into) {
            let mut residual = self.inner.alloc(rows, self.hidden)?;
            self.inner.write(&mut residual, 0, &self.residual.lock().expect("one thread"))?;
            self.inner.linear(&residual, rows, std::slice::from_mut(gate))?;
        }
        Ok(())
    }

    fn attend(
        &self,
        q: &B::Buf,
        kv: &B::Kv,
        slices: &[SeqSlice<'_>],
        attention: &Attention,
        out: &mut B::Buf,
    ) -> Result<()> {
        let mut attention = *attention;
        match (self.fault, attention.mask) {
            (Fault::CausalBlocks, Mask::DraftBlock { reach }) => {
                attention.mask = Mask::Causal { window: Some(reach + 1) };
            }
            (Fault::StridedHeads { kv_heads }, Mask::Causal { .. }) => {
                let rows = slices.iter().map(|slice| slice.len).sum();
                let Attention { heads, head_dim, .. } = attention;
                let group = heads / kv_heads;
                let all: Vec<u32> = (0..rows as u32).collect();
                let mut strided = self.inner.alloc(rows, heads * head_dim)?;
                self.inner.copy(q, &all, &mut strided, 0, 0)?;
                // Position `n` of the grouped order holds the head that would read it strided.
                let head = |n: usize| n % group * kv_heads + n / group;
                self.reorder(&mut strided, rows, &attention, head)?;
                self.inner.attend(&strided, kv, slices, &attention, out)?;
                let back = |j: usize| j % kv_heads * group + j / kv_heads;
                return self.reorder(out, rows, &attention, back);
            }
            _ => {}
        }
        self.inner.attend(q, kv, slices, &attention, out)
    }

    fn gate(&self, x: &mut B::Buf, rows: usize, gate: &B::Buf) -> Result<()> {
        if self.fault == Fault::NoGate { Ok(()) } else { self.inner.gate(x, rows, gate) }
    }

    fn alloc(&self, rows: usize, cols: usize) -> Result<B::Buf> {
        self.inner.alloc(rows, cols)
    }

    fn write(&self, buf: &mut B::Buf, first_row: usize, data: &[f32]) -> Result<()> {
        self.inner.write(buf, first_row, data)
    }

    fn read(&self, buf: &B::Buf, first_row: usize, out: &mut [f32]) -> Result<()> {
        self.inner.read(buf, first_row, out)
    }

    fn copy(
        &self,
        from: &B::Buf,
        rows: &[u32],
        to: &mut B::Buf,
        first_row: usize,
        first_col: usize,
    ) -> Result<()> {
        self.inner.copy(from, rows, to, first_row, first_col)
    }

    fn load(&self, weight: WeightView<'_>) -> Result<B::Weight> {
        self.inner.load(weight)
    }

    fn weight_bytes(&self, tensor: &TensorInfo) -> u64 {
        self.inner.weight_bytes(tensor)
    }

    fn free_memory(&self) -> Result<Option<u64>> {
        self.inner.free_memory()
    }

    fn alloc_kv(&self, shape: KvShape) -> Result<B::Kv> {
        self.inner.alloc_kv(shape)
    }

    fn copy_blocks(&self, kv: &mut B::Kv, copies: &[BlockCopy]) -> Result<()> {
        self.inner.copy_blocks(kv, copies)
    }

    fn save_block(&self, kv: &B::Kv, block: u32, out: &mut Vec<u8>) -> Result<()> {
        self.inner.save_block(kv, block, out)
    }

    fn load_block(&self, kv: &mut B::Kv, block: u32, bytes: &mut &[u8]) -> Result<()> {
        self.inner.load_block(kv, block, bytes)
    }

    fn embed(
        &self,
        table: &B::Weight,
        ids: &[Token],
        out: &mut B::Buf,
        first_row: usize,
    ) -> Result<()> {
        self.inner.embed(table, ids, out, first_row)
    }

    fn head_norm(&self, x: &mut B::Buf, rows: usize, weight: &B::Buf, eps: f32) -> Result<()> {
        self.inner.head_norm(x, rows, weight, eps)
    }

    fn rope(&self, x: &mut B::Buf, slices: &[SeqSlice<'_>], rope: &Rope) -> Result<()> {
        self.inner.rope(x, slices, rope)
    }

    fn write_kv(
        &self,
        kv: &mut B::Kv,
        slices: &[SeqSlice<'_>],
        k: &B::Buf,
        v: &B::Buf,
    ) -> Result<()> {
        self.inner.write_kv(kv, slices, k, v)
    }

    fn silu_mul(&self, gate: &mut B::Buf, rows: usize, up: &B::Buf) -> Result<()> {
        self.inner.silu_mul(gate, rows, up)
    }

    fn add(&self, x: &mut B::Buf, rows: usize, y: &B::Buf) -> Result<()> {
        self.inner.add(x, rows, y)
    }

    fn scale_softcap(
        &self,
        x: &mut B::Buf,
        rows: usize,
        scale: f32,
        cap: Option<f32>,
    ) -> Result<()> {
        self.inner.scale_softcap(x, rows, scale, cap)
    }

    fn sample(
        &self,
        logits: &B::Buf,
        rows: &[SampleRow<'_>],
        out: &mut Vec<Sampled>,
    ) -> Result<()> {
        self.inner.sample(logits, rows, out)
    }
}
