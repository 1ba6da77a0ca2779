//! Q4_K in vectors.

use std::arch::x86_64::*;

use super::{HIGH, HIGH_BITS, LOW, NUMBERS, Q4K, SCALES, UNITS};
use crate::quant::Of;
use crate::quant::rows::avx512::{Numbers, Vectors, halves, nibbles, vector};

impl Vectors for Q4K {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn number_vectors(block: &[u8], step: usize) -> Numbers {
        nibbles(block, NUMBERS * step)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn pair_vector(block: &[u8], of: Of, pair: usize) -> __m512i {
        pair_of(&block[SCALES..], of, pair)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn unit_vector(block: &[u8], of: Of) -> __m512 {
        unit_of(&block[SCALES..], of)
    }
}

/// Multiples of two groups.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(in crate::quant) fn pair_of(from: &[u8], of: Of, pair: usize) -> __m512i {
    multiples(from, of, 4 * pair, 2 * pair, 0x0001_0001)
}

/// Scales of one group.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(in crate::quant) fn scale_of(from: &[u8], group: usize) -> __m512i {
    let (pair, half) = (group / 2, 16 * (group % 2));
    multiples(from, Of::Scales, half + 4 * pair, half + 2 * pair, 1)
}

/// Multiples whose parts begin `low` and `high` bits up in their words, in the halves that have
/// a bit set in `halves`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn multiples(from: &[u8], of: Of, low: usize, high: usize, halves: i32) -> __m512i {
    let shift = |words, by: usize| _mm512_srlv_epi32(words, _mm512_set1_epi32(by as i32));
    let low = shift(vector(from, LOW[of as usize]), low);
    let high = shift(vector(from, HIGH), HIGH_BITS[of as usize] + high);
    let low = _mm512_and_si512(low, _mm512_set1_epi32(15 * halves));
    let high = _mm512_and_si512(high, _mm512_set1_epi32(3 * halves));
    _mm512_or_si512(low, _mm512_slli_epi32::<4>(high))
}

/// What they count in.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(in crate::quant) fn unit_of(from: &[u8], of: Of) -> __m512 {
    halves(from, UNITS[of as usize])
}
