//! Packed Q4_1 in AVX-512.

use std::arch::x86_64::*;

use super::{MINIMUMS, Q4_1, SCALES};
use crate::quant::layout::{BlockVectors, GroupParam};
use crate::quant::panel::avx512::{QuantVectors, halves, nibbles};

impl BlockVectors for Q4_1 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn quant_vectors(block: &[u8], _: usize) -> QuantVectors {
        nibbles(block, 0)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn scale_vectors(block: &[u8], _: usize) -> [__m512; 2] {
        [halves(block, SCALES), _mm512_setzero_ps()]
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn block_factor_vector(block: &[u8], _: GroupParam) -> __m512 {
        _mm512_xor_ps(halves(block, MINIMUMS), _mm512_set1_ps(-0.0))
    }
}
