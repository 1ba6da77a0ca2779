//! Parts of packed blocks as vectors.

use std::arch::x86_64::*;

use super::Numbers;
pub(in crate::quant) use crate::kernels::simd::avx512::vector;

/// 16 half-precision numbers from `at` on.
#[inline]
#[target_feature(enable = "avx512f")]
pub(in crate::quant) fn halves(block: &[u8], at: usize) -> __m512 {
    let bytes: &[u8; 32] = block[at..at + 32].try_into().expect("16 numbers");
    // SAFETY: 32 bytes are there.
    let raw = unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) };
    _mm512_cvtph_ps(raw)
}

/// 16 signed bytes from `at` on, as numbers.
#[inline]
#[target_feature(enable = "avx512f")]
pub(in crate::quant) fn bytes(block: &[u8], at: usize) -> __m512 {
    let bytes: &[u8; 16] = block[at..at + 16].try_into().expect("16 bytes");
    // SAFETY: 16 bytes are there.
    let raw = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
    _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(raw))
}

/// Nibbles of 4 vectors from `at` on, quads in order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(in crate::quant) fn nibbles(block: &[u8], at: usize) -> Numbers {
    let mask = _mm512_set1_epi8(15);
    let mut out = [_mm512_setzero_si512(); 8];
    for i in 0..4 {
        let both = vector(block, at + 64 * i);
        out[i] = _mm512_and_si512(both, mask);
        out[i + 4] = _mm512_and_si512(_mm512_srli_epi16::<4>(both), mask);
    }
    out
}

/// What a table has for the nibbles of 4 vectors from `at` on, quads in order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(in crate::quant) fn levels(block: &[u8], at: usize, table: &[u8; 16]) -> Numbers {
    // SAFETY: 16 bytes are there.
    let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
    let table = _mm512_broadcast_i32x4(table);
    nibbles(block, at).map(|number| _mm512_shuffle_epi8(table, number))
}

/// Pairs of signed bytes of 16 rows from `at` on, the first of each low and the second high in a word.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(in crate::quant) fn byte_pairs(block: &[u8], at: usize) -> __m512i {
    let bytes: &[u8; 32] = block[at..at + 32].try_into().expect("16 pairs");
    // SAFETY: 32 bytes are there.
    _mm512_cvtepi8_epi16(unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) })
}
