//! Packed Q4_0: 4 vectors of nibbles per block, then 16 scales.

#[cfg(target_arch = "x86_64")]
mod avx512;

use muse_core::quant::{Format, q4_0};

use super::layout::PackedLayout;
use super::panel::{self, PANEL_ROWS, Quants};

/// Offset of the scales in a packed block.
const SCALES: usize = 256;

pub(super) struct Q4_0;

impl PackedLayout for Q4_0 {
    const FORMAT: Format = Format::Q4_0;
    const GROUP: usize = 32;
    const OFFSET: i32 = 8;
    const BYTES: usize = PANEL_ROWS * q4_0::BYTES;

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        panel::put_nibbles(out, lane, &std::array::from_fn(|k| q4_0::quant(block, k)));
        panel::put_half(&mut out[SCALES..], lane, block);
    }

    #[inline(always)]
    fn quants(block: &[u8], _: usize) -> Quants {
        panel::nibbles(block)
    }

    #[inline(always)]
    fn scales(block: &[u8], _: usize) -> [[f32; PANEL_ROWS]; 2] {
        [panel::halves(&block[SCALES..]), [0.0; PANEL_ROWS]]
    }
}
