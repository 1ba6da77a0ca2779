//! Q6_K in vectors.

use std::arch::x86_64::*;

use super::{D, HIGH, SCALES, STEP_BYTES};
use crate::quant::rows::avx512::{Step, bytes, halves, nibbles, vector};

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn unpack(block: &[u8], step: usize) -> Step {
    let d = halves(block, D);
    let block = &block[STEP_BYTES * step..][..STEP_BYTES];
    let mut numbers = nibbles(block, 0);
    let mask = _mm512_set1_epi8(0x30);
    for half in 0..2 {
        let high = vector(block, HIGH + 64 * half);
        let pairs = [
            _mm512_slli_epi16::<4>(high),
            _mm512_slli_epi16::<2>(high),
            high,
            _mm512_srli_epi16::<2>(high),
        ];
        for (numbers, pairs) in numbers[4 * half..].iter_mut().zip(pairs) {
            // numbers | (pairs & mask)
            *numbers = _mm512_ternarylogic_epi32::<0xf8>(*numbers, pairs, mask);
        }
    }
    let scale = |half: usize| _mm512_mul_ps(d, bytes(block, SCALES + 16 * half));
    Step { numbers, scales: [scale(0), scale(1)] }
}
