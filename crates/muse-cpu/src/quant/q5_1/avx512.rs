//! Q5_1 in vectors.

use std::arch::x86_64::*;

use super::{MINIMUMS, SCALES};
use crate::quant::q5_0::avx512::numbers;
use crate::quant::rows::avx512::{Step, halves};

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn unpack(block: &[u8], _: usize) -> Step {
    let zero = _mm512_setzero_ps();
    let minus = _mm512_xor_ps(halves(block, MINIMUMS), _mm512_set1_ps(-0.0));
    let scales = [halves(block, SCALES), zero];
    Step { numbers: numbers(block), scales, minimums: [minus, zero] }
}
