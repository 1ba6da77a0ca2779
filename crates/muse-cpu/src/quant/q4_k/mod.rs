//! Q4_K: for each of 8 groups 4 vectors of nibbles; then the scales and minimums of the groups as
//! words of the rows, the four low bits of four groups in each of two, the two high bits of all in
//! a third; then 16 scales of scales and 16 of minimums.

#[cfg(target_arch = "x86_64")]
mod avx512;

use muse_core::quant::{Format, q4_k};

use super::{PANEL, Packing, Step, panel};

/// Bytes of a group's numbers.
const NUMBERS: usize = 256;
/// Where the words with low bits are: of a group a byte, scale below minimum.
const LOW: usize = 8 * NUMBERS;
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

    #[inline(always)]
    fn unpack(block: &[u8], step: usize) -> Step {
        let low = panel::words(&block[LOW + step / 4 * 64..]).map(|w| w >> (step % 4 * 8));
        let high = panel::words(&block[HIGH..]).map(|w| w >> (2 * step));
        let (d, d_minimum) = (panel::halves(&block[D..]), panel::halves(&block[D_MINIMUM..]));
        let (mut scales, mut minimums) = ([[0.0; PANEL]; 2], [[0.0; PANEL]; 2]);
        for lane in 0..PANEL {
            let scale = low[lane] & 15 | (high[lane] & 3) << 4;
            let minimum = low[lane] >> 4 & 15 | (high[lane] >> 16 & 3) << 4;
            scales[0][lane] = d[lane] * scale as f32;
            minimums[0][lane] = d_minimum[lane] * minimum as f32;
        }
        Step { numbers: panel::nibbles(&block[NUMBERS * step..]), scales, minimums }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn unpack_avx512(block: &[u8], step: usize) -> super::rows::avx512::Step {
        avx512::unpack(block, step)
    }
}
