//! Q4_K: for each of 8 groups 4 vectors of nibbles; then the scales and minimums of the groups as
//! words of the rows, the four low bits of all scales in one, of all minimums in another, the two
//! high bits of both in a third; then 16 scales of scales and 16 of minimums.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;

use muse_core::quant::{Format, q4_k};

use super::panel::Numbers;
use super::{Of, PANEL, Packing, panel};

/// Bytes of a group's numbers.
const NUMBERS: usize = 256;
/// Where the scales are in a packed block.
const SCALES: usize = 8 * NUMBERS;
/// Where the words with four low bits are, those of scales and of minimums, and that with the two
/// high bits of all; numbers of even groups lie below those of odd ones, so that a mask takes out a
/// pair.
const LOW: [usize; 2] = [0, 64];
const HIGH: usize = 128;
/// Where the high bits of scales and of minimums begin in their word.
const HIGH_BITS: [usize; 2] = [8, 0];
const UNITS: [usize; 2] = [HIGH + 64, HIGH + 64 + 32];

pub(super) struct Q4K;

impl Packing for Q4K {
    const FORMAT: Format = Format::Q4K;
    const GROUP: usize = 32;
    const OFFSET: i32 = 0;
    const WHOLE: bool = true;
    const MINIMUMS: bool = true;
    const BYTES: usize = PANEL * q4_k::BYTES;

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        for group in 0..8 {
            let number = |k| q4_k::nibble_of_groups(&block[16..], 32 * group + k);
            panel::put_nibbles(&mut out[NUMBERS * group..], lane, &std::array::from_fn(number));
        }
        put_scales(block, lane, &mut out[SCALES..]);
    }

    #[inline(always)]
    fn numbers(block: &[u8], step: usize) -> Numbers {
        panel::nibbles(&block[NUMBERS * step..])
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

/// Lays out the first 16 bytes of a block of the file: scales of scales, scales, minimums.
pub(super) fn put_scales(block: &[u8], lane: usize, out: &mut [u8]) {
    for group in 0..8 {
        let (scale, minimum) = q4_k::scale_minimum(&block[4..16], group);
        let (pair, half) = (group / 2, 16 * (group % 2));
        for (of, number) in [scale, minimum].map(u32::from).into_iter().enumerate() {
            panel::put_word(&mut out[LOW[of]..], lane, (number & 15) << (half + 4 * pair));
            let high = number >> 4 << (half + HIGH_BITS[of] + 2 * pair);
            panel::put_word(&mut out[HIGH..], lane, high);
        }
    }
    panel::put_half(&mut out[UNITS[0]..], lane, &block[..2]);
    panel::put_half(&mut out[UNITS[1]..], lane, &block[2..]);
}

/// Multiples of two groups as they were put.
#[inline(always)]
pub(super) fn pair_of(from: &[u8], of: Of, pair: usize) -> [u32; PANEL] {
    let (low, high) = (panel::words(&from[LOW[of as usize]..]), panel::words(&from[HIGH..]));
    std::array::from_fn(|lane| {
        let low = low[lane] >> (4 * pair) & 0x000f_000f;
        low | (high[lane] >> (HIGH_BITS[of as usize] + 2 * pair) & 0x0003_0003) << 4
    })
}

/// What they count in.
#[inline(always)]
pub(super) fn unit_of(from: &[u8], of: Of) -> [f32; PANEL] {
    panel::halves(&from[UNITS[of as usize]..])
}
