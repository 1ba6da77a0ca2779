//! Q6_K: for each 32 values 4 vectors of low nibbles, 2 of high bit pairs, of each row the scales of
//! the two groups; then 16 scales of scales.

#[cfg(target_arch = "x86_64")]
mod avx512;

use muse_core::quant::{Format, q6_k};

use super::panel::Numbers;
use super::{Of, PANEL, Packing, panel};

/// Bytes of 32 values of 16 rows.
const STEP_BYTES: usize = 256 + 128 + 32;
/// Where the high bits and the scales are in these.
const HIGH: usize = 256;
const SCALES: usize = HIGH + 128;
const D: usize = 8 * STEP_BYTES;

pub(super) struct Q6K;

impl Packing for Q6K {
    const FORMAT: Format = Format::Q6K;
    const GROUP: usize = 16;
    const OFFSET: i32 = 32;
    const WHOLE: bool = true;
    const BYTES: usize = PANEL * q6_k::BYTES;

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        for step in 0..8 {
            let number = |k| q6_k::number(block, 32 * step + k);
            let out = &mut out[STEP_BYTES * step..];
            panel::put_nibbles(out, lane, &std::array::from_fn(number));
            panel::put_pairs(&mut out[HIGH..], lane, &std::array::from_fn(|k| number(k) >> 4));
            for half in 0..2 {
                out[SCALES + 2 * lane + half] = q6_k::scale(block, 2 * step + half) as u8;
            }
        }
        panel::put_half(&mut out[D..], lane, &block[208..]);
    }

    #[inline(always)]
    fn numbers(block: &[u8], step: usize) -> Numbers {
        let block = &block[STEP_BYTES * step..][..STEP_BYTES];
        let (mut numbers, high) = (panel::nibbles(block), panel::pairs(&block[HIGH..]));
        for (numbers, high) in numbers.iter_mut().zip(high) {
            for (number, high) in numbers.iter_mut().zip(high) {
                *number |= high << 4;
            }
        }
        numbers
    }

    #[inline(always)]
    fn pair(block: &[u8], _: Of, pair: usize) -> [u32; PANEL] {
        panel::byte_pairs(&block[STEP_BYTES * pair + SCALES..])
    }

    #[inline(always)]
    fn unit(block: &[u8], _: Of) -> [f32; PANEL] {
        panel::halves(&block[D..])
    }
}
