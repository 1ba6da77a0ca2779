//! Q5_K: for each of 8 groups 4 vectors of nibbles and 8 masks of fifth bits; then the scales as
//! Q4_K has them.

#[cfg(target_arch = "x86_64")]
mod avx512;

use muse_core::quant::{Format, q5_k};

use super::q4_k::{self, put_scales, scales};
use super::q5_0::{numbers, put_numbers};
use super::{Minimums, PANEL, Packing, Step};

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
    fn unpack(block: &[u8], step: usize) -> Step {
        let scales = [scales(&block[SCALES..], step), [0.0; PANEL]];
        Step { numbers: numbers(&block[NUMBERS * step..]), scales }
    }

    #[inline(always)]
    fn minimums(block: &[u8]) -> Minimums {
        q4_k::minimums(&block[SCALES..])
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
        q4_k::avx512::minimums(&block[SCALES..])
    }
}
