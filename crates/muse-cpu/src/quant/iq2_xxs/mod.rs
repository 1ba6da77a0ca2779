//! IQ2_XXS: the points of the grid written out, for each 32 values 2 vectors of two-bit levels and
//! 8 masks of signs; then the scales of the 8 groups as words of the rows, and 16 scales of scales.
//! Looking points up while multiplying would cost more than reading the third bit does.

#[cfg(target_arch = "x86_64")]
mod avx512;

use muse_core::quant::grid::{IQ2_XXS, LEVELS_2};
use muse_core::quant::{Format, iq2_xxs, sign};

use super::panel::Numbers;
use super::{PANEL, Packing, panel};

/// Bytes of 32 values of 16 rows.
const STEP_BYTES: usize = 128 + 64;
/// Where the signs are in these.
const SIGNS: usize = 128;
const SCALES: usize = 8 * STEP_BYTES;
const D: usize = SCALES + 64;

/// The levels as bytes.
const LEVELS: [u8; 4] =
    [LEVELS_2[0] as u8, LEVELS_2[1] as u8, LEVELS_2[2] as u8, LEVELS_2[3] as u8];

pub(super) struct Iq2Xxs;

impl Packing for Iq2Xxs {
    const FORMAT: Format = Format::Iq2Xxs;
    const GROUP: usize = 32;
    const OFFSET: i32 = 64;
    const BYTES: usize = D + 32;

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        let groups = block[2..iq2_xxs::BYTES].as_chunks::<8>().0;
        for (step, &[a, b, c, d, rest @ ..]) in groups.iter().enumerate() {
            let (points, word) = ([a, b, c, d], u32::from_le_bytes(rest));
            let level = |k: usize| (IQ2_XXS[usize::from(points[k / 8])] >> (2 * (k % 8)) & 3) as u8;
            let signs = |k: usize| sign::even((word >> (7 * (k / 8)) & 127) as u8) >> (k % 8) & 1;
            let out_step = &mut out[STEP_BYTES * step..];
            panel::put_pairs(out_step, lane, &std::array::from_fn(level));
            panel::put_bits(&mut out_step[SIGNS..], lane, &std::array::from_fn(signs));
            panel::put_word(&mut out[SCALES..], lane, word >> 28 << (4 * step));
        }
        panel::put_half(&mut out[D..], lane, block);
    }

    #[inline(always)]
    fn numbers(block: &[u8], step: usize) -> Numbers {
        let block = &block[STEP_BYTES * step..][..STEP_BYTES];
        let (mut numbers, signs) = (panel::pairs(block), panel::bits(&block[SIGNS..]));
        for (numbers, signs) in numbers.iter_mut().zip(signs) {
            for (number, sign) in numbers.iter_mut().zip(signs) {
                let level = LEVELS[usize::from(*number)];
                let offset = Self::OFFSET as u8;
                *number = if sign == 0 { offset + level } else { offset - level };
            }
        }
        numbers
    }

    #[inline(always)]
    fn scales(block: &[u8], step: usize) -> [[f32; PANEL]; 2] {
        let (d, words) = (panel::halves(&block[D..]), panel::words(&block[SCALES..]));
        let scale = |lane: usize| {
            let scale = words[lane] >> (4 * step) & 15;
            d[lane] * (0.5 + scale as f32) * 0.25
        };
        [std::array::from_fn(scale), [0.0; PANEL]]
    }
}
