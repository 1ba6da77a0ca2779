//! Levels in vectors.

use std::arch::x86_64::*;

use super::{Form, INDICES, Levels};
use crate::quant::rows::avx512::{Numbers, Vectors, byte_pairs, bytes, levels, vector};
use crate::quant::{Of, PANEL};

impl<F: Form> Vectors for Levels<F> {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn number_vectors(block: &[u8], step: usize) -> Numbers {
        levels(block, Self::STEP_BYTES * step, &Self::TABLE)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn scale_vectors(block: &[u8], step: usize) -> [__m512; 2] {
        let from = &block[Self::STEP_BYTES * step..][..Self::STEP_BYTES];
        let units = _mm512_castsi512_ps(vector(block, Self::UNITS));
        let mut scales = [_mm512_setzero_ps(); 2];
        for (group, scale) in scales.iter_mut().take(Self::GROUPS).enumerate() {
            *scale = _mm512_mul_ps(units, bytes(from, INDICES + PANEL * group));
        }
        scales
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn pair_vector(block: &[u8], of: Of, pair: usize) -> __m512i {
        byte_pairs(block, Self::pair_at(of, pair))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn unit_vector(block: &[u8], of: Of) -> __m512 {
        _mm512_castsi512_ps(vector(block, Self::unit_at(of)))
    }
}
