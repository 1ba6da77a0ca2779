//! Packed Q5_0 in AVX-512.

use std::arch::x86_64::*;

use super::{FIFTH, Q5_0, SCALES};
use crate::quant::layout::BlockVectors;
use crate::quant::panel::avx512::{QuantVectors, halves, nibbles};

impl BlockVectors for Q5_0 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn quant_vectors(block: &[u8], _: usize) -> QuantVectors {
        five_bits(block)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn scale_vectors(block: &[u8], _: usize) -> [__m512; 2] {
        [halves(block, SCALES), _mm512_setzero_ps()]
    }
}

/// See [`super::five_bits`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(in crate::quant) fn five_bits(block: &[u8]) -> QuantVectors {
    let mut quants = nibbles(block, 0);
    for (quant, fifth) in quants.iter_mut().zip(block[FIFTH..].as_chunks::<8>().0) {
        let fifth = u64::from_le_bytes(*fifth);
        *quant = _mm512_mask_add_epi8(*quant, fifth, *quant, _mm512_set1_epi8(16));
    }
    quants
}
