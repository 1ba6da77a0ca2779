//! Q6_K in vectors.

use std::arch::x86_64::*;

use super::{D, HIGH, Q6K, SCALES, STEP_BYTES};
use crate::quant::Of;
use crate::quant::rows::avx512::{Numbers, Vectors, byte_pairs, halves, nibbles, vector};

impl Vectors for Q6K {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn number_vectors(block: &[u8], step: usize) -> Numbers {
        let block = &block[STEP_BYTES * step..][..STEP_BYTES];
        let mut numbers = nibbles(block, 0);
        let mask = _mm512_set1_epi8(0x30);
        for half in 0..2 {
            let high = vector(block, HIGH + 64 * half);
            let pairs = [
                _mm512_slli_epi16::<4>(high),
                _mm512_slli_epi16::<2>(high),
                high,
                _mm512_srli_epi16::<2>(high),
            ];
            for (numbers, pairs) in numbers[4 * half..].iter_mut().zip(pairs) {
                // numbers | (pairs & mask)
                *numbers = _mm512_ternarylogic_epi32::<0xf8>(*numbers, pairs, mask);
            }
        }
        numbers
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn pair_vector(block: &[u8], _: Of, pair: usize) -> __m512i {
        byte_pairs(block, STEP_BYTES * pair + SCALES)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn unit_vector(block: &[u8], _: Of) -> __m512 {
        halves(block, D)
    }
}
