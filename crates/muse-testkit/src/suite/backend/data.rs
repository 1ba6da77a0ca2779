//! Reproducible inputs: noise, weights in any format, sequences over scattered pages.

use muse_core::contract::{PAGE_TOKENS, PageGroup, PageTable, Place, WeightView};
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

/// A sequence whose pages lie scattered and whose window pages start at `window_base`.
pub(super) struct Sequence {
    pub(super) full: Vec<u32>,
    pub(super) window: Vec<u32>,
    pub(super) window_base: u32,
}

impl Sequence {
    /// A sequence of up to `end` positions.
    pub(super) fn new(free: &mut Vec<u32>, end: usize, window_base: u32) -> Self {
        let mut take = |from: usize| {
            (from / PAGE_TOKENS..end.div_ceil(PAGE_TOKENS))
                .map(|_| free.pop().expect("enough pages for the test"))
                .collect()
        };
        Self { full: take(0), window: take(window_base as usize), window_base }
    }

    pub(super) fn place(&self, start: u32, rows: usize) -> Place<'_> {
        let Self { full, window, window_base } = self;
        Place { start, rows, pages: PageTable { full, window, window_base: *window_base } }
    }

    /// First position with a page.
    pub(super) fn base(&self, group: PageGroup) -> u32 {
        self.place(0, 0).pages.group(group).1
    }
}

/// The numbers below `n`, shuffled.
pub(super) fn shuffled_pages(n: u32, seed: u64) -> Vec<u32> {
    let mut noise = Noise::new(seed);
    let mut pages: Vec<u32> = (0..n).collect();
    for i in (1..pages.len()).rev() {
        pages.swap(i, noise.below(i + 1));
    }
    pages
}
