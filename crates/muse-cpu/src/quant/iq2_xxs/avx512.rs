//! IQ2_XXS in vectors.

use std::arch::x86_64::*;

use super::{D, Iq2Xxs, LEVELS, SCALES, SIGNS, STEP_BYTES};
use crate::quant::Packing;
use crate::quant::rows::avx512::{Numbers, Vectors, halves, vector};

impl Vectors for Iq2Xxs {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn number_vectors(block: &[u8], step: usize) -> Numbers {
        let block = &block[STEP_BYTES * step..][..STEP_BYTES];
        let signs = block[SIGNS..].as_chunks::<8>().0;
        // Positive levels with the offset; a negative one is twice the offset less that.
        let levels = u32::from_le_bytes(LEVELS.map(|level| level + Self::OFFSET as u8));
        let levels = _mm512_set1_epi32(levels as i32);
        let twice = _mm512_set1_epi8((2 * Self::OFFSET) as u8 as i8);
        let mask = _mm512_set1_epi8(3);
        let mut numbers = [_mm512_setzero_si512(); 8];
        for half in 0..2 {
            let codes = vector(block, 64 * half);
            let shifted = [
                codes,
                _mm512_srli_epi16::<2>(codes),
                _mm512_srli_epi16::<4>(codes),
                _mm512_srli_epi16::<6>(codes),
            ];
            for (i, codes) in shifted.into_iter().enumerate() {
                let level = _mm512_shuffle_epi8(levels, _mm512_and_si512(codes, mask));
                let negative = u64::from_le_bytes(signs[4 * half + i]);
                numbers[4 * half + i] = _mm512_mask_sub_epi8(level, negative, twice, level);
            }
        }
        numbers
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn scale_vectors(block: &[u8], step: usize) -> [__m512; 2] {
        let (d, words) = (halves(block, D), vector(block, SCALES));
        let scale = _mm512_srlv_epi32(words, _mm512_set1_epi32(4 * step as i32));
        let scale = _mm512_cvtepi32_ps(_mm512_and_si512(scale, _mm512_set1_epi32(15)));
        let scale = _mm512_mul_ps(d, _mm512_add_ps(scale, _mm512_set1_ps(0.5)));
        [_mm512_mul_ps(scale, _mm512_set1_ps(0.25)), _mm512_setzero_ps()]
    }
}
