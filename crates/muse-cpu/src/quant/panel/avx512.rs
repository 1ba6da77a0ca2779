//! Reads parts of packed blocks as AVX-512 vectors.

use std::arch::x86_64::*;

pub(in crate::quant) use crate::kernels::simd::avx512::load_vector;

/// See [`super::Quants`].
pub(in crate::quant) type QuantVectors = [__m512i; 8];

/// 16 half-precision numbers from byte `at`.
#[inline]
#[target_feature(enable = "avx512f")]
pub(in crate::quant) fn halves(block: &[u8], at: usize) -> __m512 {
    let bytes: &[u8; 32] = block[at..at + 32].try_into().expect("16 numbers");
    // SAFETY: the reference covers 32 bytes.
    let raw = unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) };
    _mm512_cvtph_ps(raw)
}

/// 16 signed bytes from byte `at`, as floats.
#[inline]
#[target_feature(enable = "avx512f")]
pub(in crate::quant) fn bytes(block: &[u8], at: usize) -> __m512 {
    let bytes: &[u8; 16] = block[at..at + 16].try_into().expect("16 bytes");
    // SAFETY: the reference covers 16 bytes.
    let raw = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
    _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(raw))
}

/// See [`super::nibbles`]; from byte `at`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(in crate::quant) fn nibbles(block: &[u8], at: usize) -> QuantVectors {
    let mask = _mm512_set1_epi8(15);
    let mut out = [_mm512_setzero_si512(); 8];
    for i in 0..4 {
        let both = load_vector(block, at + 64 * i);
        out[i] = _mm512_and_si512(both, mask);
        out[i + 4] = _mm512_and_si512(_mm512_srli_epi16::<4>(both), mask);
    }
    out
}

/// See [`super::nibbles`]; from byte `at`, each nibble replaced by its entry in `table`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(in crate::quant) fn lookup_nibbles(block: &[u8], at: usize, table: &[u8; 16]) -> QuantVectors {
    // SAFETY: the reference covers 16 bytes.
    let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
    let table = _mm512_broadcast_i32x4(table);
    nibbles(block, at).map(|index| _mm512_shuffle_epi8(table, index))
}

/// See [`super::byte_pairs`]; from byte `at`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(in crate::quant) fn byte_pairs(block: &[u8], at: usize) -> __m512i {
    let bytes: &[u8; 32] = block[at..at + 32].try_into().expect("16 pairs");
    // SAFETY: the reference covers 32 bytes.
    _mm512_cvtepi8_epi16(unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) })
}
