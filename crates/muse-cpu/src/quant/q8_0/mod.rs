//! Packed Q8_0: 8 vectors of quants per block, with 128 added, then 16 scales.

#[cfg(target_arch = "x86_64")]
mod avx512;

use muse_core::quant::{Format, q8_0};

use super::layout::PackedLayout;
use super::panel::{self, PANEL_ROWS, Quants};

/// Offset of the scales in a packed block.
const SCALES: usize = 512;

pub(super) struct Q8_0;

impl PackedLayout for Q8_0 {
    const FORMAT: Format = Format::Q8_0;
    const GROUP: usize = 32;
    const OFFSET: i32 = 128;
    const BYTES: usize = PANEL_ROWS * q8_0::BYTES;

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        panel::put_bytes(out, lane, &std::array::from_fn(|k| block[2 + k] ^ 0x80));
        panel::put_half(&mut out[SCALES..], lane, block);
    }

    #[inline(always)]
    fn quants(block: &[u8], _: usize) -> Quants {
        panel::bytes(block)
    }

    #[inline(always)]
    fn scales(block: &[u8], _: usize) -> [[f32; PANEL_ROWS]; 2] {
        [panel::halves(&block[SCALES..]), [0.0; PANEL_ROWS]]
    }
}
