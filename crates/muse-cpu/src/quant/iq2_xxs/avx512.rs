//! Packed IQ2_XXS in AVX-512.

use std::arch::x86_64::*;

use super::{FACTORS, Iq2Xxs, SCALES, SIGNS, STEP_BYTES, VALUES};
use crate::quant::layout::{BlockVectors, PackedLayout};
use crate::quant::panel::avx512::{QuantVectors, halves, load_vector};

impl BlockVectors for Iq2Xxs {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn quant_vectors(block: &[u8], step: usize) -> QuantVectors {
        let block = &block[STEP_BYTES * step..][..STEP_BYTES];
        let signs = block[SIGNS..].as_chunks::<8>().0;
        // Quants of positive values; that of a negative value is twice the offset less this.
        let positive = u32::from_le_bytes(VALUES.map(|value| value + Self::OFFSET as u8));
        let positive = _mm512_set1_epi32(positive as i32);
        let twice = _mm512_set1_epi8((2 * Self::OFFSET) as u8 as i8);
        let mask = _mm512_set1_epi8(3);
        let mut quants = [_mm512_setzero_si512(); 8];
        for half in 0..2 {
            let entries = load_vector(block, 64 * half);
            let shifted = [
                entries,
                _mm512_srli_epi16::<2>(entries),
                _mm512_srli_epi16::<4>(entries),
                _mm512_srli_epi16::<6>(entries),
            ];
            for (i, entries) in shifted.into_iter().enumerate() {
                let quant = _mm512_shuffle_epi8(positive, _mm512_and_si512(entries, mask));
                let negative = u64::from_le_bytes(signs[4 * half + i]);
                quants[4 * half + i] = _mm512_mask_sub_epi8(quant, negative, twice, quant);
            }
        }
        quants
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn scale_vectors(block: &[u8], step: usize) -> [__m512; 2] {
        let (d, words) = (halves(block, FACTORS), load_vector(block, SCALES));
        let scale = _mm512_srlv_epi32(words, _mm512_set1_epi32(4 * step as i32));
        let scale = _mm512_cvtepi32_ps(_mm512_and_si512(scale, _mm512_set1_epi32(15)));
        let scale = _mm512_mul_ps(d, _mm512_add_ps(scale, _mm512_set1_ps(0.5)));
        [_mm512_mul_ps(scale, _mm512_set1_ps(0.25)), _mm512_setzero_ps()]
    }
}
