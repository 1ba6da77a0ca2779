//! IQ4_NL in vectors.

use std::arch::x86_64::*;

use super::{Iq4Nl, SCALES, level};
use crate::quant::rows::avx512::{self as rows, Numbers, Vectors, halves};

impl Vectors for Iq4Nl {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn number_vectors(block: &[u8], _: usize) -> Numbers {
        levels(block, 0)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn scale_vectors(block: &[u8], _: usize) -> [__m512; 2] {
        [halves(block, SCALES), _mm512_setzero_ps()]
    }
}

/// Levels of the indices in 4 vectors from `at` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(in crate::quant) fn levels(block: &[u8], at: usize) -> Numbers {
    rows::levels(block, at, &std::array::from_fn(|index| level(index as u8)))
}
