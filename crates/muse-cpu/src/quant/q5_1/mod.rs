//! Q5_1: numbers as Q5_0 has them, then 16 scales and 16 minimums, which the file adds.

#[cfg(target_arch = "x86_64")]
mod avx512;

use muse_core::quant::{Format, q5_1};

use super::q5_0::{numbers, put_numbers};
use super::{Minimums, PANEL, Packing, Step, panel};

/// Where the scales and the minimums are in a packed block.
const SCALES: usize = 256 + 64;
const MINIMUMS: usize = SCALES + 32;

pub(super) struct Q5_1;

impl Packing for Q5_1 {
    const FORMAT: Format = Format::Q5_1;
    const GROUP: usize = 32;
    const OFFSET: i32 = 0;
    const MINIMUMS: bool = true;
    const BYTES: usize = PANEL * q5_1::BYTES;
    const EXPANDS: bool = true;

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        put_numbers(out, lane, &std::array::from_fn(|k| q5_1::number(block, k)));
        panel::put_half(&mut out[SCALES..], lane, block);
        panel::put_half(&mut out[MINIMUMS..], lane, &block[2..]);
    }

    #[inline(always)]
    fn unpack(block: &[u8], _: usize) -> Step {
        let scales = [panel::halves(&block[SCALES..]), [0.0; PANEL]];
        Step { numbers: numbers(block), scales }
    }

    #[inline(always)]
    fn minimums(block: &[u8]) -> Minimums {
        Minimums::of_one(panel::halves(&block[MINIMUMS..]).map(|minimum| -minimum))
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
        avx512::minimums(block)
    }
}
