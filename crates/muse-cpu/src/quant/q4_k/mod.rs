//! Q4_K: for each of 8 groups 4 vectors of nibbles; then the scales and minimums of the groups as
//! words of the rows, the four low bits of four groups in each of two, the two high bits of all in
//! a third; then 16 scales of scales and 16 of minimums.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;

use muse_core::quant::{Format, q4_k};

use super::{PANEL, Packing, Step, panel};

/// Bytes of a group's numbers.
const NUMBERS: usize = 256;
/// Where the scales are in a packed block.
const SCALES: usize = 8 * NUMBERS;

/// Where the words with low bits are in scales: of a group a byte, scale below minimum.
const LOW: usize = 0;
/// Where the words with high bits are: those of scales below those of minimums.
const HIGH: usize = LOW + 128;
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
        let (scales, minimums) = scales(&block[SCALES..], step);
        let zero = [0.0; PANEL];
        let numbers = panel::nibbles(&block[NUMBERS * step..]);
        Step { numbers, scales: [scales, zero], minimums: [minimums, zero] }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn unpack_avx512(block: &[u8], step: usize) -> super::rows::avx512::Step {
        avx512::unpack(block, step)
    }
}

/// Lays out the first 16 bytes of a block of the file: scales of scales, scales, minimums.
pub(super) fn put_scales(block: &[u8], lane: usize, out: &mut [u8]) {
    for group in 0..8 {
        let (scale, minimum) = q4_k::scale_minimum(&block[4..16], group);
        let (scale, minimum) = (u32::from(scale), u32::from(minimum));
        let low = (scale & 15 | (minimum & 15) << 4) << (group % 4 * 8);
        panel::put_word(&mut out[LOW + group / 4 * 64..], lane, low);
        let high = scale >> 4 << (2 * group) | minimum >> 4 << (16 + 2 * group);
        panel::put_word(&mut out[HIGH..], lane, high);
    }
    panel::put_half(&mut out[D..], lane, &block[..2]);
    panel::put_half(&mut out[D_MINIMUM..], lane, &block[2..]);
}

/// Scales and minimums of a group as they were put.
#[inline(always)]
pub(super) fn scales(from: &[u8], group: usize) -> ([f32; PANEL], [f32; PANEL]) {
    let low = panel::words(&from[LOW + group / 4 * 64..]).map(|w| w >> (group % 4 * 8));
    let high = panel::words(&from[HIGH..]).map(|w| w >> (2 * group));
    let (d, d_minimum) = (panel::halves(&from[D..]), panel::halves(&from[D_MINIMUM..]));
    let scale = |lane: usize| low[lane] & 15 | (high[lane] & 3) << 4;
    let minimum = |lane: usize| low[lane] >> 4 & 15 | (high[lane] >> 16 & 3) << 4;
    (
        std::array::from_fn(|lane| d[lane] * scale(lane) as f32),
        std::array::from_fn(|lane| d_minimum[lane] * minimum(lane) as f32),
    )
}
