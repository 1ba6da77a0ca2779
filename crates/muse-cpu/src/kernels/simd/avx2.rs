//! [`Simd`] in AVX2: 8 lanes.

use std::arch::x86_64::*;

use muse_core::quant::q8_0;

use super::Simd;
use crate::layout::{self, Layout, layout};

/// Proof of AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// Proof that the features are enabled: only functions compiled with them can call this without
    /// `unsafe`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn enabled() -> Self {
        Self(())
    }
}

impl Simd for Avx2 {
    type Vector = __m256;
    const LANES: usize = 8;

    #[inline(always)]
    fn zero(self) -> __m256 {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_setzero_ps() }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: `self` proves FMA.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    fn sum_lanes(self, vectors: [__m256; 4]) -> [f32; 4] {
        // SAFETY: `self` proves AVX2.
        unsafe { sum_lanes(vectors) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m256 {
        // SAFETY: the caller guarantees 8 values; `self` proves AVX2.
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, n: usize) -> __m256 {
        let mut padded = [0.0; 8];
        // SAFETY: the caller guarantees `n < 8` values.
        let part = unsafe { std::slice::from_raw_parts(from, n) };
        padded[..n].copy_from_slice(part);
        // SAFETY: `padded` has 8 values.
        unsafe { self.load(padded.as_ptr()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, vector: __m256) {
        // SAFETY: the caller guarantees 8 values; `self` proves AVX2.
        unsafe { _mm256_storeu_ps(to, vector) }
    }

    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, vector: __m256, n: usize) {
        let mut padded = [0.0; 8];
        // SAFETY: `padded` has 8 values.
        unsafe { self.store(padded.as_mut_ptr(), vector) };
        // SAFETY: the caller guarantees `n < 8` values.
        let part = unsafe { std::slice::from_raw_parts_mut(to, n) };
        part.copy_from_slice(&padded[..n]);
    }

    #[inline(always)]
    unsafe fn decode<const LAYOUT: u8>(self, row: *const u8, at: usize) -> __m256 {
        // SAFETY: the caller guarantees the bytes; `self` proves AVX2.
        unsafe { decode::<LAYOUT>(row, at) }
    }

    #[inline(always)]
    unsafe fn decode_partial<const LAYOUT: u8>(
        self,
        row: *const u8,
        at: usize,
        n: usize,
    ) -> __m256 {
        let width = layout::<LAYOUT>().format().block_bytes();
        // SAFETY: the caller guarantees `n` values at `at`.
        let row = unsafe { std::slice::from_raw_parts(row.wrapping_add(at * width), n * width) };
        let mut padded = [0.0; 8];
        for (i, value) in padded[..n].iter_mut().enumerate() {
            *value = layout::value::<LAYOUT>(row, i);
        }
        // SAFETY: `padded` has 8 values.
        unsafe { self.load(padded.as_ptr()) }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sum_lanes(vectors: [__m256; 4]) -> [f32; 4] {
    let quarters = |v| _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let [a, b, c, d] = vectors;
    let (ab, cd) = (_mm_hadd_ps(quarters(a), quarters(b)), _mm_hadd_ps(quarters(c), quarters(d)));
    let (sums, mut out) = (_mm_hadd_ps(ab, cd), [0.0; 4]);
    // SAFETY: `out` has 4 values.
    unsafe { _mm_storeu_ps(out.as_mut_ptr(), sums) };
    out
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn decode<const LAYOUT: u8>(row: *const u8, at: usize) -> __m256 {
    match layout::<LAYOUT>() {
        Layout::F32 => {
            // SAFETY: the caller guarantees 8 values at `at`.
            unsafe { _mm256_loadu_ps(row.cast::<f32>().wrapping_add(at)) }
        }
        Layout::F16 => {
            // SAFETY: as above, of 2 bytes each.
            let raw = unsafe { _mm_loadu_si128(row.wrapping_add(2 * at).cast()) };
            _mm256_cvtph_ps(raw)
        }
        Layout::Bf16 => {
            // SAFETY: as above, of 2 bytes each.
            let raw = unsafe { _mm_loadu_si128(row.wrapping_add(2 * at).cast()) };
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(raw)))
        }
        Layout::Q8_0 => {
            let block = row.wrapping_add(at / q8_0::VALUES * q8_0::BYTES);
            // SAFETY: the block begins with its scale of 2 bytes.
            let scale = unsafe { block.cast::<i16>().read_unaligned() };
            let scale = _mm256_cvtph_ps(_mm_set1_epi16(scale));
            let values = block.wrapping_add(2 + at % q8_0::VALUES).cast();
            // SAFETY: `at` is a multiple of 8, so 8 of the block's 32 bytes lie there.
            let raw = unsafe { _mm_loadl_epi64(values) };
            _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(raw)), scale)
        }
    }
}
