//! Reproducible inputs: noise, weights in any format, sequences over scattered KV blocks.

use muse_core::contract::{BlockTable, KV_BLOCK_SIZE, KvGroup, SeqSlice, WeightView};
use muse_core::quant::Format;

/// A small generator with a full-period counter behind it.
pub(super) struct Noise(u64);

impl Noise {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 31)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ (mixed >> 32)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// Values in -1 to 1.
    pub(super) fn values(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
    }

    /// Values that every cache type stores without rounding: `n / 64` with `|n| <= 127`, reached
    /// in each block of 32.
    pub(super) fn storable(&mut self, n: usize) -> Vec<f32> {
        (0..n)
            .map(|i| if i % 32 == 0 { 127.0 } else { self.below(255) as f32 - 127.0 })
            .map(|n| n / 64.0)
            .collect()
    }
}

/// A weight matrix of random blocks whose values are of moderate size.
pub(super) fn weight(format: Format, rows: usize, cols: usize) -> WeightView<'static> {
    let mut noise = Noise::new(format as u64 + 1);
    let mut block = vec![0; format.block_bytes()];
    let mut values = vec![0.0_f32; format.block_values()];
    let mut bytes = Vec::new();
    for _ in 0..rows * cols / format.block_values() {
        loop {
            block.fill_with(|| noise.bits() as u8);
            format.decode(&block, &mut values);
            let largest =
                values.iter().fold(0.0_f32, |a, x| if x.is_nan() { *x } else { a.max(x.abs()) });
            if values.iter().all(|x| x.is_finite()) && (1e-2..4.0).contains(&largest) {
                break;
            }
        }
        bytes.extend_from_slice(&block);
    }
    WeightView { name: "test", format, rows, cols, bytes: bytes.into() }
}

/// A sequence whose KV blocks lie scattered and whose window KV blocks start at `window_base`.
pub(super) struct Sequence {
    pub(super) full: Vec<u32>,
    pub(super) window: Vec<u32>,
    pub(super) window_base: u32,
}

impl Sequence {
    /// A sequence of up to `end` positions.
    pub(super) fn new(free: &mut Vec<u32>, end: usize, window_base: u32) -> Self {
        let mut take = |from: usize| {
            (from / KV_BLOCK_SIZE..end.div_ceil(KV_BLOCK_SIZE))
                .map(|_| free.pop().expect("enough blocks for the test"))
                .collect()
        };
        Self { full: take(0), window: take(window_base as usize), window_base }
    }

    pub(super) fn slice(&self, start: u32, rows: usize) -> SeqSlice<'_> {
        let Self { full, window, window_base } = self;
        SeqSlice {
            start,
            len: rows,
            blocks: BlockTable { full, window, window_base: *window_base },
        }
    }

    /// First position with a KV block.
    pub(super) fn base(&self, group: KvGroup) -> u32 {
        self.slice(0, 0).blocks.group(group).1
    }
}

/// The numbers below `n`, shuffled.
pub(super) fn shuffled_blocks(n: u32, seed: u64) -> Vec<u32> {
    let mut noise = Noise::new(seed);
    let mut blocks: Vec<u32> = (0..n).collect();
    for i in (1..blocks.len()).rev() {
        blocks.swap(i, noise.below(i + 1));
    }
    blocks
}
