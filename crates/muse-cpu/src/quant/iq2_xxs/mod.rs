//! Packed IQ2_XXS, with grid points written out: for each step of 32 values 2 vectors of two-bit
//! grid entries and 8 masks of signs; then, for each row, a word of the scales of the 8 groups;
//! then 16 factors of scales (`d`). Looking up grid points in the kernel would cost more than
//! reading the additional bits does.

#[cfg(target_arch = "x86_64")]
mod avx512;

use muse_core::quant::grid::{IQ2_VALUES, IQ2_XXS};
use muse_core::quant::{Format, iq2_xxs, sign};

use super::layout::PackedLayout;
use super::panel::{self, PANEL_ROWS, Quants};

/// Bytes of a step of 16 rows.
const STEP_BYTES: usize = 128 + 64;
/// Offset of the signs in a step.
const SIGNS: usize = 128;
/// Offsets of the scales and of the factors in a packed block.
const SCALES: usize = 8 * STEP_BYTES;
const FACTORS: usize = SCALES + 64;

/// The values of grid entries as bytes.
const VALUES: [u8; 4] =
    [IQ2_VALUES[0] as u8, IQ2_VALUES[1] as u8, IQ2_VALUES[2] as u8, IQ2_VALUES[3] as u8];

pub(super) struct Iq2Xxs;

impl PackedLayout for Iq2Xxs {
    const FORMAT: Format = Format::Iq2Xxs;
    const GROUP: usize = 32;
    const OFFSET: i32 = 64;
    const BYTES: usize = FACTORS + 32;

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        let groups = block[2..iq2_xxs::BYTES].as_chunks::<8>().0;
        for (step, &[a, b, c, d, rest @ ..]) in groups.iter().enumerate() {
            let (points, word) = ([a, b, c, d], u32::from_le_bytes(rest));
            let entry = |k: usize| (IQ2_XXS[usize::from(points[k / 8])] >> (2 * (k % 8)) & 3) as u8;
            let signs = |k: usize| sign::expand((word >> (7 * (k / 8)) & 127) as u8) >> (k % 8) & 1;
            let out_step = &mut out[STEP_BYTES * step..];
            panel::put_two_bits(out_step, lane, &std::array::from_fn(entry));
            panel::put_bits(&mut out_step[SIGNS..], lane, &std::array::from_fn(signs));
            panel::put_word(&mut out[SCALES..], lane, word >> 28 << (4 * step));
        }
        panel::put_half(&mut out[FACTORS..], lane, block);
    }

    #[inline(always)]
    fn quants(block: &[u8], step: usize) -> Quants {
        let block = &block[STEP_BYTES * step..][..STEP_BYTES];
        let (mut quants, signs) = (panel::two_bits(block), panel::bits(&block[SIGNS..]));
        for (quants, signs) in quants.iter_mut().zip(signs) {
            for (quant, sign) in quants.iter_mut().zip(signs) {
                let value = VALUES[usize::from(*quant)];
                let offset = Self::OFFSET as u8;
                *quant = if sign == 0 { offset + value } else { offset - value };
            }
        }
        quants
    }

    #[inline(always)]
    fn scales(block: &[u8], step: usize) -> [[f32; PANEL_ROWS]; 2] {
        let (d, words) = (panel::halves(&block[FACTORS..]), panel::words(&block[SCALES..]));
        let scale = |lane: usize| {
            let scale = words[lane] >> (4 * step) & 15;
            d[lane] * (0.5 + scale as f32) * 0.25
        };
        [std::array::from_fn(scale), [0.0; PANEL_ROWS]]
    }
}
