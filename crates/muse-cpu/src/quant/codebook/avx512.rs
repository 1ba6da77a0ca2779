//! [`CodebookLayout`] in AVX-512.

use std::arch::x86_64::*;

use super::{CodebookFormat, CodebookLayout, INDICES};
use crate::quant::layout::{BlockVectors, GroupParam};
use crate::quant::panel::PANEL_ROWS;
use crate::quant::panel::avx512::{QuantVectors, byte_pairs, bytes, load_vector, lookup_nibbles};

impl<C: CodebookFormat> BlockVectors for CodebookLayout<C> {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn quant_vectors(block: &[u8], step: usize) -> QuantVectors {
        lookup_nibbles(block, Self::STEP_BYTES * step, &Self::TABLE)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn scale_vectors(block: &[u8], step: usize) -> [__m512; 2] {
        let from = &block[Self::STEP_BYTES * step..][..Self::STEP_BYTES];
        let factors = _mm512_castsi512_ps(load_vector(block, Self::FACTORS));
        let mut scales = [_mm512_setzero_ps(); 2];
        for (group, scale) in scales.iter_mut().take(Self::GROUPS).enumerate() {
            *scale = _mm512_mul_ps(factors, bytes(from, INDICES + PANEL_ROWS * group));
        }
        scales
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn integer_pair_vector(block: &[u8], param: GroupParam, pair: usize) -> __m512i {
        byte_pairs(block, Self::integer_pair_at(param, pair))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn block_factor_vector(block: &[u8], param: GroupParam) -> __m512 {
        _mm512_castsi512_ps(load_vector(block, Self::factor_at(param)))
    }
}
