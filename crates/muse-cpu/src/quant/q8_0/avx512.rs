//! Q8_0 in vectors.

use std::arch::x86_64::*;

use super::{Q8_0, SCALES};
use crate::quant::rows::avx512::{Numbers, Vectors, halves, vector};

impl Vectors for Q8_0 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn number_vectors(block: &[u8], _: usize) -> Numbers {
        let mut numbers = [_mm512_setzero_si512(); 8];
        for (q, numbers) in numbers.iter_mut().enumerate() {
            *numbers = vector(block, 64 * q);
        }
        numbers
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn scale_vectors(block: &[u8], _: usize) -> [__m512; 2] {
        [halves(block, SCALES), _mm512_setzero_ps()]
    }
}
