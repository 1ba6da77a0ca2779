//! Packed Q5_K: 4 vectors of nibbles and 8 masks of fifth bits for each of 8 groups; then scales
//! and minimums as in Q4_K.

#[cfg(target_arch = "x86_64")]
mod avx512;

use muse_core::quant::{Format, q5_k};

use super::layout::{GroupParam, PackedLayout, integer_of};
use super::panel::{PANEL_ROWS, Quants};
use super::q4_k::{factor_of, integer_pair_of, put_scales};
use super::q5_0::{five_bits, put_five_bits};

/// Bytes of the quants of a group.
const QUANTS_BYTES: usize = 256 + 64;
/// Offset of the scales and minimums in a packed block.
const SCALES: usize = 8 * QUANTS_BYTES;

pub(super) struct Q5K;

impl PackedLayout for Q5K {
    const FORMAT: Format = Format::Q5K;
    const GROUP: usize = 32;
    const OFFSET: i32 = 0;
    const HAS_MINIMUMS: bool = true;
    const BYTES: usize = PANEL_ROWS * q5_k::BYTES;

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        for group in 0..8 {
            let quant = |k| q5_k::quant(block, 32 * group + k);
            put_five_bits(&mut out[QUANTS_BYTES * group..], lane, &std::array::from_fn(quant));
        }
        put_scales(block, lane, &mut out[SCALES..]);
    }

    #[inline(always)]
    fn quants(block: &[u8], step: usize) -> Quants {
        five_bits(&block[QUANTS_BYTES * step..])
    }

    // Products with quants of five bits do not fit 16 bits, so scales are floats here.
    #[inline(always)]
    fn scales(block: &[u8], step: usize) -> [[f32; PANEL_ROWS]; 2] {
        let pair = Self::integer_pair(block, GroupParam::Scale, step / 2);
        let factor = Self::block_factor(block, GroupParam::Scale);
        let scale = |lane: usize| factor[lane] * integer_of(pair[lane], step) as f32;
        [std::array::from_fn(scale), [0.0; PANEL_ROWS]]
    }

    #[inline(always)]
    fn integer_pair(block: &[u8], param: GroupParam, pair: usize) -> [u32; PANEL_ROWS] {
        integer_pair_of(&block[SCALES..], param, pair)
    }

    #[inline(always)]
    fn block_factor(block: &[u8], param: GroupParam) -> [f32; PANEL_ROWS] {
        factor_of(&block[SCALES..], param)
    }
}
