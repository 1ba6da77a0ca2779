//! Packed Q6_K: for each step of 32 values 4 vectors of low nibbles, 2 vectors of the two high
//! bits, and for each row the scales of two groups; then 16 factors of scales (`d`).

#[cfg(target_arch = "x86_64")]
mod avx512;

use muse_core::quant::{Format, q6_k};

use super::layout::{GroupParam, PackedLayout};
use super::panel::{self, PANEL_ROWS, Quants};

/// Bytes of a step of 16 rows.
const STEP_BYTES: usize = 256 + 128 + 32;
/// Offsets of the high bits and of the scales in a step.
const HIGH: usize = 256;
const SCALES: usize = HIGH + 128;
/// Offset of the factors in a packed block.
const FACTORS: usize = 8 * STEP_BYTES;

pub(super) struct Q6K;

impl PackedLayout for Q6K {
    const FORMAT: Format = Format::Q6K;
    const GROUP: usize = 16;
    const OFFSET: i32 = 32;
    const INTEGER_SCALES: bool = true;
    const BYTES: usize = PANEL_ROWS * q6_k::BYTES;

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        for step in 0..8 {
            let quant = |k| q6_k::quant(block, 32 * step + k);
            let out = &mut out[STEP_BYTES * step..];
            panel::put_nibbles(out, lane, &std::array::from_fn(quant));
            panel::put_two_bits(&mut out[HIGH..], lane, &std::array::from_fn(|k| quant(k) >> 4));
            for half in 0..2 {
                out[SCALES + 2 * lane + half] = q6_k::scale(block, 2 * step + half) as u8;
            }
        }
        panel::put_half(&mut out[FACTORS..], lane, &block[208..]);
    }

    #[inline(always)]
    fn quants(block: &[u8], step: usize) -> Quants {
        let block = &block[STEP_BYTES * step..][..STEP_BYTES];
        let (mut quants, high) = (panel::nibbles(block), panel::two_bits(&block[HIGH..]));
        for (quants, high) in quants.iter_mut().zip(high) {
            for (quant, high) in quants.iter_mut().zip(high) {
                *quant |= high << 4;
            }
        }
        quants
    }

    #[inline(always)]
    fn integer_pair(block: &[u8], _: GroupParam, pair: usize) -> [u32; PANEL_ROWS] {
        panel::byte_pairs(&block[STEP_BYTES * pair + SCALES..])
    }

    #[inline(always)]
    fn block_factor(block: &[u8], _: GroupParam) -> [f32; PANEL_ROWS] {
        panel::halves(&block[FACTORS..])
    }
}
