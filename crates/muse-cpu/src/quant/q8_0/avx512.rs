//! Packed Q8_0 in AVX-512.

use std::arch::x86_64::*;

use super::{Q8_0, SCALES};
use crate::quant::layout::BlockVectors;
use crate::quant::panel::avx512::{QuantVectors, halves, load_vector};

impl BlockVectors for Q8_0 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn quant_vectors(block: &[u8], _: usize) -> QuantVectors {
        let mut quants = [_mm512_setzero_si512(); 8];
        for (q, quants) in quants.iter_mut().enumerate() {
            *quants = load_vector(block, 64 * q);
        }
        quants
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn scale_vectors(block: &[u8], _: usize) -> [__m512; 2] {
        [halves(block, SCALES), _mm512_setzero_ps()]
    }
}
