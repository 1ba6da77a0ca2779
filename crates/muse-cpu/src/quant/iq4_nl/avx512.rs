//! IQ4_NL in vectors.

use std::arch::x86_64::*;

use super::{SCALES, level};
use crate::quant::rows::avx512::{self as rows, Step, halves};

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn unpack(block: &[u8], _: usize) -> Step {
    let zero = _mm512_setzero_ps();
    let scales = [halves(block, SCALES), zero];
    Step { numbers: levels(block, 0), scales }
}

/// Levels of the indices in 4 vectors from `at` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(in crate::quant) fn levels(block: &[u8], at: usize) -> [__m512i; 8] {
    rows::levels(block, at, &std::array::from_fn(|index| level(index as u8)))
}
