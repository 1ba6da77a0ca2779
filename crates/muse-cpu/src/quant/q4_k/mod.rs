//! Packed Q4_K: 4 vectors of nibbles for each of 8 groups; then, for each row, a word of the four
//! low bits of all scales, a word of those of all minimums and a word of the two high bits of both;
//! then 16 factors of scales (`d`) and 16 of minimums (`dmin`).

#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;

use muse_core::quant::{Format, q4_k};

use super::layout::{GroupParam, PackedLayout};
use super::panel::{self, PANEL_ROWS, Quants};

/// Bytes of the quants of a group.
const QUANTS_BYTES: usize = 256;
/// Offset of the scales and minimums in a packed block; the offsets below count from here.
const SCALES: usize = 8 * QUANTS_BYTES;
/// Offsets of the words of four low bits, of scales and of minimums, and of the word of two high
/// bits of both. Even groups are in the low half of a word and odd groups in the high half, so that
/// a mask extracts a pair.
const LOW: [usize; 2] = [0, 64];
const HIGH: usize = 128;
/// The bit at which the high bits of scales and of minimums begin.
const HIGH_BITS: [usize; 2] = [8, 0];
/// Offsets of the factors of scales and of minimums.
const FACTORS: [usize; 2] = [HIGH + 64, HIGH + 64 + 32];

pub(super) struct Q4K;

impl PackedLayout for Q4K {
    const FORMAT: Format = Format::Q4K;
    const GROUP: usize = 32;
    const OFFSET: i32 = 0;
    const INTEGER_SCALES: bool = true;
    const HAS_MINIMUMS: bool = true;
    const BYTES: usize = PANEL_ROWS * q4_k::BYTES;

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        for group in 0..8 {
            let quant = |k| q4_k::nibble_of_groups(&block[16..], 32 * group + k);
            panel::put_nibbles(&mut out[QUANTS_BYTES * group..], lane, &std::array::from_fn(quant));
        }
        put_scales(block, lane, &mut out[SCALES..]);
    }

    #[inline(always)]
    fn quants(block: &[u8], step: usize) -> Quants {
        panel::nibbles(&block[QUANTS_BYTES * step..])
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

/// Writes the first 16 bytes of a quant block of the file: `d`, `dmin`, scales and minimums.
pub(super) fn put_scales(block: &[u8], lane: usize, out: &mut [u8]) {
    for group in 0..8 {
        let (scale, minimum) = q4_k::scale_minimum(&block[4..16], group);
        let (pair, half) = (group / 2, 16 * (group % 2));
        for (param, integer) in [scale, minimum].map(u32::from).into_iter().enumerate() {
            panel::put_word(&mut out[LOW[param]..], lane, (integer & 15) << (half + 4 * pair));
            let high = integer >> 4 << (half + HIGH_BITS[param] + 2 * pair);
            panel::put_word(&mut out[HIGH..], lane, high);
        }
    }
    panel::put_half(&mut out[FACTORS[0]..], lane, &block[..2]);
    panel::put_half(&mut out[FACTORS[1]..], lane, &block[2..]);
}

/// Reads the scales or the minimums of two groups.
#[inline(always)]
pub(super) fn integer_pair_of(from: &[u8], param: GroupParam, pair: usize) -> [u32; PANEL_ROWS] {
    let (low, high) = (panel::words(&from[LOW[param as usize]..]), panel::words(&from[HIGH..]));
    std::array::from_fn(|lane| {
        let low = low[lane] >> (4 * pair) & 0x000f_000f;
        low | (high[lane] >> (HIGH_BITS[param as usize] + 2 * pair) & 0x0003_0003) << 4
    })
}

/// Reads the factor of the scales or of the minimums.
#[inline(always)]
pub(super) fn factor_of(from: &[u8], param: GroupParam) -> [f32; PANEL_ROWS] {
    panel::halves(&from[FACTORS[param as usize]..])
}
