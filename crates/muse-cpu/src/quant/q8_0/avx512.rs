//! Q8_0 in vectors.

use std::arch::x86_64::*;

use super::SCALES;
use crate::quant::rows::avx512::{Step, halves, vector};

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn unpack(block: &[u8], _: usize) -> Step {
    let mut numbers = [_mm512_setzero_si512(); 8];
    for (q, numbers) in numbers.iter_mut().enumerate() {
        *numbers = vector(block, 64 * q);
    }
    let zero = _mm512_setzero_ps();
    Step { numbers, scales: [halves(block, SCALES), zero] }
}
