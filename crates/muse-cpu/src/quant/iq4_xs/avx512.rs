//! Packed IQ4_XS in AVX-512.

use std::arch::x86_64::*;

use super::{FACTORS, HIGH, INDICES, Iq4Xs, LOW};
use crate::quant::iq4_nl::avx512::codebook_values;
use crate::quant::layout::BlockVectors;
use crate::quant::panel::avx512::{QuantVectors, halves, load_vector};

impl BlockVectors for Iq4Xs {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn quant_vectors(block: &[u8], step: usize) -> QuantVectors {
        codebook_values(block, INDICES * step)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn scale_vectors(block: &[u8], step: usize) -> [__m512; 2] {
        let high: &[u8; 32] = block[HIGH..FACTORS].try_into().expect("16 half words");
        // SAFETY: the reference covers 32 bytes.
        let high = _mm512_cvtepu16_epi32(unsafe { _mm256_loadu_si256(high.as_ptr().cast()) });
        let shift = |words, by: usize| _mm512_srlv_epi32(words, _mm512_set1_epi32(by as i32));
        let low = _mm512_and_si512(shift(load_vector(block, LOW), 4 * step), _mm512_set1_epi32(15));
        let high = _mm512_and_si512(shift(high, 2 * step), _mm512_set1_epi32(3));
        let scale = _mm512_or_si512(low, _mm512_slli_epi32::<4>(high));
        let scale = _mm512_cvtepi32_ps(_mm512_sub_epi32(scale, _mm512_set1_epi32(32)));
        [_mm512_mul_ps(halves(block, FACTORS), scale), _mm512_setzero_ps()]
    }
}
