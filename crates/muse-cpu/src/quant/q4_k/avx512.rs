//! Q4_K in vectors.

use std::arch::x86_64::*;

use super::{D, D_MINIMUM, HIGH, LOW, LOW_MINIMUMS, NUMBERS, PAIRS, SCALES, high_bits};
use crate::quant::MOST_PAIRS;
use crate::quant::rows::avx512::{Minimums, Step, halves, nibbles, vector};

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn unpack(block: &[u8], step: usize) -> Step {
    let scales = [scales(&block[SCALES..], step), _mm512_setzero_ps()];
    Step { numbers: nibbles(block, NUMBERS * step), scales }
}

/// Scales of a group.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(in crate::quant) fn scales(from: &[u8], group: usize) -> __m512 {
    let shift = |words, by: usize| _mm512_srlv_epi32(words, _mm512_set1_epi32(by as i32));
    let low = shift(vector(from, LOW), 4 * group);
    let high = shift(vector(from, HIGH), high_bits(group));
    let low = _mm512_and_si512(low, _mm512_set1_epi32(15));
    let high = _mm512_and_si512(high, _mm512_set1_epi32(3));
    let scale = _mm512_or_si512(low, _mm512_slli_epi32::<4>(high));
    _mm512_mul_ps(halves(from, D), _mm512_cvtepi32_ps(scale))
}

/// Minimums of a block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(in crate::quant) fn minimums(from: &[u8]) -> Minimums {
    let shift = |words, by: usize| _mm512_srlv_epi32(words, _mm512_set1_epi32(by as i32));
    let mut pairs = [_mm512_setzero_si512(); MOST_PAIRS];
    for (pair, numbers) in pairs.iter_mut().take(PAIRS).enumerate() {
        let low = shift(vector(from, LOW_MINIMUMS), 4 * pair);
        let high = shift(vector(from, HIGH), 2 * pair);
        let low = _mm512_and_si512(low, _mm512_set1_epi32(0x000f_000f));
        let high = _mm512_and_si512(high, _mm512_set1_epi32(0x0003_0003));
        *numbers = _mm512_or_si512(low, _mm512_slli_epi32::<4>(high));
    }
    Minimums { pairs, unit: halves(from, D_MINIMUM) }
}
