//! Packed Q5_0: 4 vectors of nibbles and 8 masks of fifth bits per block, then 16 scales.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;

use muse_core::quant::{Format, q5_0};

use super::layout::PackedLayout;
use super::panel::{self, PANEL_ROWS, Quants};

/// Offsets of the fifth bits and of the scales in a packed block.
const FIFTH: usize = 256;
const SCALES: usize = FIFTH + 64;

pub(super) struct Q5_0;

impl PackedLayout for Q5_0 {
    const FORMAT: Format = Format::Q5_0;
    const GROUP: usize = 32;
    const OFFSET: i32 = 16;
    const BYTES: usize = PANEL_ROWS * q5_0::BYTES;
    const UNPACK_FOR_BATCHES: bool = true;

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        put_five_bits(out, lane, &std::array::from_fn(|k| q5_0::quant(block, k)));
        panel::put_half(&mut out[SCALES..], lane, block);
    }

    #[inline(always)]
    fn quants(block: &[u8], _: usize) -> Quants {
        five_bits(block)
    }

    #[inline(always)]
    fn scales(block: &[u8], _: usize) -> [[f32; PANEL_ROWS]; 2] {
        [panel::halves(&block[SCALES..]), [0.0; PANEL_ROWS]]
    }
}

/// Writes 32 quants of five bits: 4 vectors of nibbles, then 8 masks of fifth bits.
pub(super) fn put_five_bits(out: &mut [u8], lane: usize, quants: &[u8; 32]) {
    panel::put_nibbles(out, lane, quants);
    panel::put_bits(&mut out[FIFTH..], lane, &quants.map(|quant| quant >> 4));
}

/// Reads what [`put_five_bits`] wrote.
#[inline(always)]
pub(super) fn five_bits(from: &[u8]) -> Quants {
    let (mut quants, fifth) = (panel::nibbles(from), panel::bits(&from[FIFTH..]));
    for (quant, fifth) in quants.as_flattened_mut().iter_mut().zip(fifth.as_flattened()) {
        *quant |= fifth << 4;
    }
    quants
}
