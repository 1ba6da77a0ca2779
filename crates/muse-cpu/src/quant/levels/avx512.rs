//! Levels in vectors.

use std::arch::x86_64::*;

use super::{Form, INDICES, Levels};
use crate::quant::rows::avx512::{Minimums, Step, bytes, levels, vector};
use crate::quant::{MOST_PAIRS, PANEL};

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn unpack<F: Form>(block: &[u8], step: usize) -> Step {
    let from = &block[Levels::<F>::STEP_BYTES * step..][..Levels::<F>::STEP_BYTES];
    let numbers = levels(from, 0, &Levels::<F>::TABLE);
    let mut scales = [_mm512_setzero_ps(); 2];
    let units = _mm512_castsi512_ps(vector(block, Levels::<F>::UNITS));
    for (group, scale) in scales.iter_mut().take(Levels::<F>::GROUPS).enumerate() {
        *scale = _mm512_mul_ps(units, bytes(from, INDICES + PANEL * group));
    }
    Step { numbers, scales }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn minimums<F: Form>(block: &[u8]) -> Minimums {
    let mut pairs = [_mm512_setzero_si512(); MOST_PAIRS];
    for (pair, numbers) in pairs.iter_mut().take(Levels::<F>::PAIRS).enumerate() {
        let from = &block[Levels::<F>::MINIMUMS_AT + 2 * PANEL * pair..][..2 * PANEL];
        // SAFETY: 32 bytes are there.
        let both = unsafe { _mm256_loadu_si256(from.as_ptr().cast()) };
        *numbers = _mm512_cvtepu8_epi16(both);
    }
    Minimums { pairs, unit: _mm512_castsi512_ps(vector(block, Levels::<F>::MINIMUM_UNITS)) }
}
