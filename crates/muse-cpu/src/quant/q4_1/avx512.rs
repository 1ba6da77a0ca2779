//! Q4_1 in vectors.

use std::arch::x86_64::*;

use super::{MINIMUMS, SCALES};
use crate::quant::MOST_PAIRS;
use crate::quant::rows::avx512::{Minimums, Step, halves, nibbles};

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn unpack(block: &[u8], _: usize) -> Step {
    Step { numbers: nibbles(block, 0), scales: [halves(block, SCALES), _mm512_setzero_ps()] }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn minimums(block: &[u8]) -> Minimums {
    let unit = _mm512_xor_ps(halves(block, MINIMUMS), _mm512_set1_ps(-0.0));
    Minimums { pairs: [_mm512_setzero_si512(); MOST_PAIRS], unit }
}
