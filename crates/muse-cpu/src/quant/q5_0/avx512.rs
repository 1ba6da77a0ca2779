//! Q5_0 in vectors.

use std::arch::x86_64::*;

use super::{FIFTH, Q5_0, SCALES};
use crate::quant::rows::avx512::{Numbers, Vectors, halves, nibbles};

impl Vectors for Q5_0 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn number_vectors(block: &[u8], _: usize) -> Numbers {
        numbers(block)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn scale_vectors(block: &[u8], _: usize) -> [__m512; 2] {
        [halves(block, SCALES), _mm512_setzero_ps()]
    }
}

/// Five-bit numbers at the beginning of `block`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(in crate::quant) fn numbers(block: &[u8]) -> Numbers {
    let mut numbers = nibbles(block, 0);
    for (number, fifth) in numbers.iter_mut().zip(block[FIFTH..].as_chunks::<8>().0) {
        let fifth = u64::from_le_bytes(*fifth);
        *number = _mm512_mask_add_epi8(*number, fifth, *number, _mm512_set1_epi8(16));
    }
    numbers
}
