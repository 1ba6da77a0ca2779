//! A device that stores rows and samples tokens, and computes nothing else.

use std::sync::atomic::{AtomicU64, Ordering};

use muse_core::contract::{
    Attention, Backend, BlockCopy, KvShape, Rope, SampleRow, Sampled, SeqSlice, Token, WeightView,
};
use muse_core::{Result, sampler};

use super::device_fault;

/// A device for fake models, which compute by themselves.
#[derive(Debug, Default)]
pub struct FakeBackend {
    samples: AtomicU64,
    fail_at: AtomicU64,
}

/// Rows in memory.
#[derive(Debug)]
pub struct FakeBuf {
    cols: usize,
    data: Vec<f32>,
}

impl FakeBackend {
    /// Makes the `n`-th `sample` from now fail, counted from 1.
    pub fn fail_at(&self, n: u64) {
        self.fail_at.store(self.samples.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }
}

fn computes_nothing() -> ! {
    panic!("the fake device computes nothing: use a real backend for a real model")
}

impl Backend for FakeBackend {
    type Buf = FakeBuf;
    type Weight = ();
    type Kv = ();

    fn free_memory(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn alloc(&self, rows: usize, cols: usize) -> Result<FakeBuf> {
        Ok(FakeBuf { cols, data: vec![0.0; rows * cols] })
    }

    fn write(&self, buf: &mut FakeBuf, first_row: usize, data: &[f32]) -> Result<()> {
        buf.data[first_row * buf.cols..][..data.len()].copy_from_slice(data);
        Ok(())
    }

    fn read(&self, buf: &FakeBuf, first_row: usize, out: &mut [f32]) -> Result<()> {
        out.copy_from_slice(&buf.data[first_row * buf.cols..][..out.len()]);
        Ok(())
    }

    fn copy(
        &self,
        from: &FakeBuf,
        rows: &[u32],
        to: &mut FakeBuf,
        first_row: usize,
        first_col: usize,
    ) -> Result<()> {
        for (i, row) in rows.iter().enumerate() {
            let source = &from.data[*row as usize * from.cols..][..from.cols];
            let at = (first_row + i) * to.cols + first_col;
            to.data[at..at + from.cols].copy_from_slice(source);
        }
        Ok(())
    }

    fn sample(
        &self,
        logits: &FakeBuf,
        rows: &[SampleRow<'_>],
        out: &mut Vec<Sampled>,
    ) -> Result<()> {
        let n = self.samples.fetch_add(1, Ordering::Relaxed) + 1;
        if n == self.fail_at.load(Ordering::Relaxed) {
            return Err(device_fault("sampling tokens"));
        }
        for row in rows {
            out.push(sampler::sample(&logits.data[row.row * logits.cols..][..logits.cols], row));
        }
        Ok(())
    }

    fn load(&self, _: WeightView<'_>) -> Result<()> {
        computes_nothing()
    }
    fn alloc_kv(&self, _: KvShape) -> Result<()> {
        computes_nothing()
    }
    fn copy_blocks(&self, (): &mut (), _: &[BlockCopy]) -> Result<()> {
        computes_nothing()
    }
    fn save_block(&self, (): &(), _: u32, _: &mut Vec<u8>) -> Result<()> {
        computes_nothing()
    }
    fn load_block(&self, (): &mut (), _: u32, _: &mut &[u8]) -> Result<()> {
        computes_nothing()
    }
    fn embed(&self, (): &(), _: &[Token], _: &mut FakeBuf, _: usize) -> Result<()> {
        computes_nothing()
    }
    fn linear(&self, _: &FakeBuf, _: usize, _: &mut [(&(), &mut FakeBuf)]) -> Result<()> {
        computes_nothing()
    }
    fn rms_norm(
        &self,
        _: &FakeBuf,
        _: usize,
        _: Option<&FakeBuf>,
        _: f32,
        _: &mut FakeBuf,
    ) -> Result<()> {
        computes_nothing()
    }
    fn head_norm(&self, _: &mut FakeBuf, _: usize, _: &FakeBuf, _: f32) -> Result<()> {
        computes_nothing()
    }
    fn rope(&self, _: &mut FakeBuf, _: &[SeqSlice<'_>], _: &Rope) -> Result<()> {
        computes_nothing()
    }
    fn write_kv(&self, (): &mut (), _: &[SeqSlice<'_>], _: &FakeBuf, _: &FakeBuf) -> Result<()> {
        computes_nothing()
    }
    fn attend(
        &self,
        _: &FakeBuf,
        (): &(),
        _: &[SeqSlice<'_>],
        _: &Attention,
        _: &mut FakeBuf,
    ) -> Result<()> {
        computes_nothing()
    }
    fn gate(&self, _: &mut FakeBuf, _: usize, _: &FakeBuf) -> Result<()> {
        computes_nothing()
    }
    fn silu_mul(&self, _: &mut FakeBuf, _: usize, _: &FakeBuf) -> Result<()> {
        computes_nothing()
    }
    fn add(&self, _: &mut FakeBuf, _: usize, _: &FakeBuf) -> Result<()> {
        computes_nothing()
    }
    fn scale_softcap(&self, _: &mut FakeBuf, _: usize, _: f32, _: Option<f32>) -> Result<()> {
        computes_nothing()
    }
}
