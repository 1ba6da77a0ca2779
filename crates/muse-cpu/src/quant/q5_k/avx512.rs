//! Q5_K in vectors.

use std::arch::x86_64::*;

use super::{NUMBERS, Q5K, SCALES};
use crate::quant::Of;
use crate::quant::q4_k::avx512::{pair_of, scale_of, unit_of};
use crate::quant::q5_0::avx512::numbers;
use crate::quant::rows::avx512::{Numbers, Vectors};

impl Vectors for Q5K {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn number_vectors(block: &[u8], step: usize) -> Numbers {
        numbers(&block[NUMBERS * step..])
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn scale_vectors(block: &[u8], step: usize) -> [__m512; 2] {
        let block = &block[SCALES..];
        let scale = _mm512_cvtepi32_ps(scale_of(block, step));
        [_mm512_mul_ps(unit_of(block, Of::Scales), scale), _mm512_setzero_ps()]
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
