//! IQ4_NL in vectors.

use std::arch::x86_64::*;

use super::{SCALES, level};
use crate::quant::rows::avx512::{Step, halves, nibbles};

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn unpack(block: &[u8], _: usize) -> Step {
    let zero = _mm512_setzero_ps();
    let scales = [halves(block, SCALES), zero];
    Step { numbers: levels(block, 0), scales, minimums: [zero; 2] }
}

/// Levels of the indices in 4 vectors from `at` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(in crate::quant) fn levels(block: &[u8], at: usize) -> [__m512i; 8] {
    let table: [u8; 16] = std::array::from_fn(|index| level(index as u8));
    // SAFETY: 16 bytes are there.
    let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
    let table = _mm512_broadcast_i32x4(table);
    let mut numbers = nibbles(block, at);
    for number in &mut numbers {
        *number = _mm512_shuffle_epi8(table, *number);
    }
    numbers
}
