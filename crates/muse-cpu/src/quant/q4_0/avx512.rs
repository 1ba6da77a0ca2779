//! Packed Q4_0 in AVX-512.

use std::arch::x86_64::*;

use super::{Q4_0, SCALES};
use crate::quant::layout::BlockVectors;
use crate::quant::panel::avx512::{QuantVectors, halves, nibbles};

impl BlockVectors for Q4_0 {
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
}
