//! Packed Q4_K in AVX-512.

use std::arch::x86_64::*;

use super::{FACTORS, HIGH, HIGH_BITS, LOW, Q4K, QUANTS_BYTES, SCALES};
use crate::quant::layout::{BlockVectors, GroupParam};
use crate::quant::panel::avx512::{QuantVectors, halves, load_vector, nibbles};

impl BlockVectors for Q4K {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn quant_vectors(block: &[u8], step: usize) -> QuantVectors {
        nibbles(block, QUANTS_BYTES * step)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn integer_pair_vector(block: &[u8], param: GroupParam, pair: usize) -> __m512i {
        integer_pair_of(&block[SCALES..], param, pair)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn block_factor_vector(block: &[u8], param: GroupParam) -> __m512 {
        factor_of(&block[SCALES..], param)
    }
}

/// See [`super::integer_pair_of`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(in crate::quant) fn integer_pair_of(from: &[u8], param: GroupParam, pair: usize) -> __m512i {
    integers(from, param, 4 * pair, 2 * pair, 0x0001_0001)
}

/// The scales of one group.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(in crate::quant) fn scale_of(from: &[u8], group: usize) -> __m512i {
    let (pair, half) = (group / 2, 16 * (group % 2));
    integers(from, GroupParam::Scale, half + 4 * pair, half + 2 * pair, 1)
}

/// The integers whose low bits begin at bit `low` and whose high bits begin at bit `high` of their
/// words, of the groups in the halves of which `halves` has the lowest bit set.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn integers(from: &[u8], param: GroupParam, low: usize, high: usize, halves: i32) -> __m512i {
    let shift = |words, by: usize| _mm512_srlv_epi32(words, _mm512_set1_epi32(by as i32));
    let low = shift(load_vector(from, LOW[param as usize]), low);
    let high = shift(load_vector(from, HIGH), HIGH_BITS[param as usize] + high);
    let low = _mm512_and_si512(low, _mm512_set1_epi32(15 * halves));
    let high = _mm512_and_si512(high, _mm512_set1_epi32(3 * halves));
    _mm512_or_si512(low, _mm512_slli_epi32::<4>(high))
}

/// See [`super::factor_of`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(in crate::quant) fn factor_of(from: &[u8], param: GroupParam) -> __m512 {
    halves(from, FACTORS[param as usize])
}
