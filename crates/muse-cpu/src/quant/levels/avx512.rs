//! Levels in vectors.

use std::arch::x86_64::*;

use super::{Form, INDICES, Levels};
use crate::quant::PANEL;
use crate::quant::rows::avx512::{Step, bytes, levels, vector};

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn unpack<F: Form>(block: &[u8], step: usize) -> Step {
    let from = &block[Levels::<F>::STEP_BYTES * step..][..Levels::<F>::STEP_BYTES];
    let numbers = levels(from, 0, &Levels::<F>::TABLE);
    let mut scales = [_mm512_setzero_ps(); 2];
    let mut minimums = scales;
    let units = _mm512_castsi512_ps(vector(block, Levels::<F>::UNITS));
    for group in 0..Levels::<F>::GROUPS {
        scales[group] = _mm512_mul_ps(units, bytes(from, INDICES + PANEL * group));
        if F::MINIMUMS {
            let units = _mm512_castsi512_ps(vector(block, Levels::<F>::MINIMUM_UNITS));
            let minimum = bytes(from, Levels::<F>::MINIMUMS_AT + PANEL * group);
            minimums[group] = _mm512_mul_ps(units, minimum);
        }
    }
    Step { numbers, scales, minimums }
}
