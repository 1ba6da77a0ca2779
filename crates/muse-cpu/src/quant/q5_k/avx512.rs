//! Packed Q5_K in AVX-512.

use std::arch::x86_64::*;

use super::{Q5K, QUANTS_BYTES, SCALES};
use crate::quant::layout::{BlockVectors, GroupParam};
use crate::quant::panel::avx512::QuantVectors;
use crate::quant::q4_k::avx512::{factor_of, integer_pair_of, scale_of};
use crate::quant::q5_0::avx512::five_bits;

impl BlockVectors for Q5K {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn quant_vectors(block: &[u8], step: usize) -> QuantVectors {
        five_bits(&block[QUANTS_BYTES * step..])
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn scale_vectors(block: &[u8], step: usize) -> [__m512; 2] {
        let block = &block[SCALES..];
        let scale = _mm512_cvtepi32_ps(scale_of(block, step));
        [_mm512_mul_ps(factor_of(block, GroupParam::Scale), scale), _mm512_setzero_ps()]
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn integer_pair_vector(block: &[u8], param: GroupParam, pair: usize) -> __m512i {
        integer_pair_of(&block[SCALES..], param, pair)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn block_factor_vector(block: &[u8], param: GroupParam) -> __m512 {
        factor_of(&block[SCALES..], param)
    }
}
