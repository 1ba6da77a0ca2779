//! Packed Q5_1: quants as in Q5_0, then 16 scales and 16 minimums. The format adds minimums, so
//! they are negated when they are read.

#[cfg(target_arch = "x86_64")]
mod avx512;

use muse_core::quant::{Format, q5_1};

use super::layout::{GroupParam, PackedLayout};
use super::panel::{self, PANEL_ROWS, Quants};
use super::q5_0::{five_bits, put_five_bits};

/// Offsets of the scales and of the minimums in a packed block.
const SCALES: usize = 256 + 64;
const MINIMUMS: usize = SCALES + 32;

pub(super) struct Q5_1;

impl PackedLayout for Q5_1 {
    const FORMAT: Format = Format::Q5_1;
    const GROUP: usize = 32;
    const OFFSET: i32 = 0;
    const HAS_MINIMUMS: bool = true;
    const BYTES: usize = PANEL_ROWS * q5_1::BYTES;
    const UNPACK_FOR_BATCHES: bool = true;

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        put_five_bits(out, lane, &std::array::from_fn(|k| q5_1::quant(block, k)));
        panel::put_half(&mut out[SCALES..], lane, block);
        panel::put_half(&mut out[MINIMUMS..], lane, &block[2..]);
    }

    #[inline(always)]
    fn quants(block: &[u8], _: usize) -> Quants {
        five_bits(block)
    }

    #[inline(always)]
    fn scales(block: &[u8], _: usize) -> [[f32; PANEL_ROWS]; 2] {
        [panel::halves(&block[SCALES..]), [0.0; PANEL_ROWS]]
    }

    #[inline(always)]
    fn block_factor(block: &[u8], _: GroupParam) -> [f32; PANEL_ROWS] {
        panel::halves(&block[MINIMUMS..]).map(|minimum| -minimum)
    }
}
