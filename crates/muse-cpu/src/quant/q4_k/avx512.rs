//! Q4_K in vectors.

use std::arch::x86_64::*;

use super::{D, D_MINIMUM, HIGH, LOW, NUMBERS, SCALES};
use crate::quant::rows::avx512::{Step, halves, nibbles, vector};

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn unpack(block: &[u8], step: usize) -> Step {
    let (scales, minimums) = scales(&block[SCALES..], step);
    let zero = _mm512_setzero_ps();
    let numbers = nibbles(block, NUMBERS * step);
    Step { numbers, scales: [scales, zero], minimums: [minimums, zero] }
}

/// Scales and minimums of a group.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(in crate::quant) fn scales(from: &[u8], group: usize) -> (__m512, __m512) {
    let shift = |words, by: usize| _mm512_srlv_epi32(words, _mm512_set1_epi32(by as i32));
    let (low, high) = (vector(from, LOW + group / 4 * 64), vector(from, HIGH));
    let at = group % 4 * 8;
    let number = |low, high| {
        let low = _mm512_and_si512(low, _mm512_set1_epi32(15));
        let high = _mm512_and_si512(high, _mm512_set1_epi32(3));
        _mm512_cvtepi32_ps(_mm512_or_si512(low, _mm512_slli_epi32::<4>(high)))
    };
    let scale = number(shift(low, at), shift(high, 2 * group));
    let minimum = number(shift(low, at + 4), shift(high, 2 * group + 16));
    (_mm512_mul_ps(halves(from, D), scale), _mm512_mul_ps(halves(from, D_MINIMUM), minimum))
}
