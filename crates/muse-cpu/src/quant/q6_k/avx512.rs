//! Packed Q6_K in AVX-512.

use std::arch::x86_64::*;

use super::{FACTORS, HIGH, Q6K, SCALES, STEP_BYTES};
use crate::quant::layout::{BlockVectors, GroupParam};
use crate::quant::panel::avx512::{QuantVectors, byte_pairs, halves, load_vector, nibbles};

impl BlockVectors for Q6K {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn quant_vectors(block: &[u8], step: usize) -> QuantVectors {
        let block = &block[STEP_BYTES * step..][..STEP_BYTES];
        let mut quants = nibbles(block, 0);
        let mask = _mm512_set1_epi8(0x30);
        for half in 0..2 {
            let high = load_vector(block, HIGH + 64 * half);
            let shifted = [
                _mm512_slli_epi16::<4>(high),
                _mm512_slli_epi16::<2>(high),
                high,
                _mm512_srli_epi16::<2>(high),
            ];
            for (quants, high) in quants[4 * half..].iter_mut().zip(shifted) {
                // quants | (high & mask)
                *quants = _mm512_ternarylogic_epi32::<0xf8>(*quants, high, mask);
            }
        }
        quants
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn integer_pair_vector(block: &[u8], _: GroupParam, pair: usize) -> __m512i {
        byte_pairs(block, STEP_BYTES * pair + SCALES)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn block_factor_vector(block: &[u8], _: GroupParam) -> __m512 {
        halves(block, FACTORS)
    }
}
