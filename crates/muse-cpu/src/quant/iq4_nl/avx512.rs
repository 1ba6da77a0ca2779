//! Packed IQ4_NL in AVX-512.

use std::arch::x86_64::*;

use super::{Iq4Nl, SCALES, codebook_value};
use crate::quant::layout::BlockVectors;
use crate::quant::panel::avx512::{QuantVectors, halves, lookup_nibbles};

impl BlockVectors for Iq4Nl {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn quant_vectors(block: &[u8], _: usize) -> QuantVectors {
        codebook_values(block, 0)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn scale_vectors(block: &[u8], _: usize) -> [__m512; 2] {
        [halves(block, SCALES), _mm512_setzero_ps()]
    }
}

/// See [`super::codebook_values`]; from byte `at`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(in crate::quant) fn codebook_values(block: &[u8], at: usize) -> QuantVectors {
    lookup_nibbles(block, at, &std::array::from_fn(|index| codebook_value(index as u8)))
}
