//! Q5_K: for each of 8 groups 4 vectors of nibbles and 8 masks of fifth bits; then the scales as
//! Q4_K has them.

#[cfg(target_arch = "x86_64")]
mod avx512;

use muse_core::quant::{Format, q5_k};

use super::panel::Numbers;
use super::q4_k::{pair_of, put_scales, unit_of};
use super::q5_0::{numbers, put_numbers};
use super::{Of, PANEL, Packing, multiple};

/// Bytes of a group's numbers.
const NUMBERS: usize = 256 + 64;
/// Where the scales are in a packed block.
const SCALES: usize = 8 * NUMBERS;

pub(super) struct Q5K;

impl Packing for Q5K {
    const FORMAT: Format = Format::Q5K;
    const GROUP: usize = 32;
    const OFFSET: i32 = 0;
    const MINIMUMS: bool = true;
    const BYTES: usize = PANEL * q5_k::BYTES;

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        for group in 0..8 {
            let number = |k| q5_k::number(block, 32 * group + k);
            put_numbers(&mut out[NUMBERS * group..], lane, &std::array::from_fn(number));
        }
        put_scales(block, lane, &mut out[SCALES..]);
    }

    #[inline(always)]
    fn numbers(block: &[u8], step: usize) -> Numbers {
        numbers(&block[NUMBERS * step..])
    }

    // Products of five bits do not fit 16.
    #[inline(always)]
    fn scales(block: &[u8], step: usize) -> [[f32; PANEL]; 2] {
        let pair = Self::pair(block, Of::Scales, step / 2);
        let unit = Self::unit(block, Of::Scales);
        let scale = |lane: usize| unit[lane] * multiple(pair[lane], step) as f32;
        [std::array::from_fn(scale), [0.0; PANEL]]
    }

    #[inline(always)]
    fn pair(block: &[u8], of: Of, pair: usize) -> [u32; PANEL] {
        pair_of(&block[SCALES..], of, pair)
    }

    #[inline(always)]
    fn unit(block: &[u8], of: Of) -> [f32; PANEL] {
        unit_of(&block[SCALES..], of)
    }
}
