//! Q4_K: for each of 8 groups 4 vectors of nibbles; then the scales and minimums of the groups as
//! words of the rows, the four low bits of all scales in one, of all minimums in another, the two
//! high bits of both in a third; then 16 scales of scales and 16 of minimums.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;

use muse_core::quant::{Format, q4_k};

use super::{MOST_PAIRS, Minimums, PANEL, Packing, Step, panel};

/// Bytes of a group's numbers.
const NUMBERS: usize = 256;
/// Where the scales are in a packed block.
const SCALES: usize = 8 * NUMBERS;
/// Pairs of groups of a block.
const PAIRS: usize = 4;

/// Where the words with low bits are in scales: a scale has four bits, one behind the other; minimums
/// of even groups are below those of odd ones, so that a mask takes out a pair.
const LOW: usize = 0;
const LOW_MINIMUMS: usize = LOW + 64;
/// Where the words with high bits are, those of even groups below those of odd ones and there those
/// of minimums below those of scales.
const HIGH: usize = LOW_MINIMUMS + 64;
const D: usize = HIGH + 64;
const D_MINIMUM: usize = D + 32;

pub(super) struct Q4K;

impl Packing for Q4K {
    const FORMAT: Format = Format::Q4K;
    const GROUP: usize = 32;
    const OFFSET: i32 = 0;
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
    fn unpack(block: &[u8], step: usize) -> Step {
        let scales = [scales(&block[SCALES..], step), [0.0; PANEL]];
        Step { numbers: panel::nibbles(&block[NUMBERS * step..]), scales }
    }

    #[inline(always)]
    fn minimums(block: &[u8]) -> Minimums {
        minimums(&block[SCALES..])
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn unpack_avx512(block: &[u8], step: usize) -> super::rows::avx512::Step {
        avx512::unpack(block, step)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn minimums_avx512(block: &[u8]) -> super::rows::avx512::Minimums {
        avx512::minimums(&block[SCALES..])
    }
}

/// Lays out the first 16 bytes of a block of the file: scales of scales, scales, minimums.
pub(super) fn put_scales(block: &[u8], lane: usize, out: &mut [u8]) {
    for group in 0..8 {
        let (scale, minimum) = q4_k::scale_minimum(&block[4..16], group);
        let (scale, minimum) = (u32::from(scale), u32::from(minimum));
        let (pair, half) = (group / 2, 16 * (group % 2));
        panel::put_word(&mut out[LOW..], lane, (scale & 15) << (4 * group));
        panel::put_word(&mut out[LOW_MINIMUMS..], lane, (minimum & 15) << (half + 4 * pair));
        let high = scale >> 4 << high_bits(group) | minimum >> 4 << (half + 2 * pair);
        panel::put_word(&mut out[HIGH..], lane, high);
    }
    panel::put_half(&mut out[D..], lane, &block[..2]);
    panel::put_half(&mut out[D_MINIMUM..], lane, &block[2..]);
}

/// Where the high bits of a scale are in their word.
const fn high_bits(group: usize) -> usize {
    16 * (group % 2) + 8 + group / 2 * 2
}

/// Scales of a group as they were put.
#[inline(always)]
pub(super) fn scales(from: &[u8], group: usize) -> [f32; PANEL] {
    let (low, high) = (panel::words(&from[LOW..]), panel::words(&from[HIGH..]));
    let d = panel::halves(&from[D..]);
    std::array::from_fn(|lane| {
        let scale = low[lane] >> (4 * group) & 15 | (high[lane] >> high_bits(group) & 3) << 4;
        d[lane] * scale as f32
    })
}

/// Minimums of a block as they were put.
#[inline(always)]
pub(super) fn minimums(from: &[u8]) -> Minimums {
    let (low, high) = (panel::words(&from[LOW_MINIMUMS..]), panel::words(&from[HIGH..]));
    let mut pairs = [[0; PANEL]; MOST_PAIRS];
    for (pair, numbers) in pairs.iter_mut().take(PAIRS).enumerate() {
        *numbers = std::array::from_fn(|lane| {
            let low = low[lane] >> (4 * pair) & 0x000f_000f;
            low | (high[lane] >> (2 * pair) & 0x0003_0003) << 4
        });
    }
    Minimums { pairs, unit: panel::halves(&from[D_MINIMUM..]) }
}
