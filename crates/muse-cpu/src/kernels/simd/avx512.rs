//! [`Simd`] in AVX-512: 16 lanes.

use std::arch::x86_64::*;

use muse_core::quant::q8_0;

use super::Simd;
use crate::layout::{Layout, layout};

/// Proof of AVX-512 F, BW, DQ and VL, AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// Proof that the features are enabled: only functions compiled with them can call this without
    /// `unsafe`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
    pub(crate) fn enabled() -> Self {
        Self(())
    }
}

impl Simd for Avx512 {
    type Vector = __m512;
    const LANES: usize = 16;

    #[inline(always)]
    fn zero(self) -> __m512 {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn sum_lanes(self, vectors: [__m512; 4]) -> [f32; 4] {
        // SAFETY: `self` proves AVX-512.
        unsafe { sum_lanes(vectors) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        // SAFETY: the caller guarantees 16 values; `self` proves AVX-512.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, n: usize) -> __m512 {
        // SAFETY: only the lanes of the mask are read, which the caller guarantees.
        unsafe { _mm512_maskz_loadu_ps(lanes_below(n), from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, vector: __m512) {
        // SAFETY: the caller guarantees 16 values; `self` proves AVX-512.
        unsafe { _mm512_storeu_ps(to, vector) }
    }

    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, vector: __m512, n: usize) {
        // SAFETY: only the lanes of the mask are written, which the caller guarantees.
        unsafe { _mm512_mask_storeu_ps(to, lanes_below(n), vector) }
    }

    #[inline(always)]
    unsafe fn decode<const LAYOUT: u8>(self, row: *const u8, at: usize) -> __m512 {
        // SAFETY: the caller guarantees the bytes; `self` proves AVX-512.
        unsafe { decode::<LAYOUT>(row, at) }
    }

    #[inline(always)]
    unsafe fn decode_partial<const LAYOUT: u8>(
        self,
        row: *const u8,
        at: usize,
        n: usize,
    ) -> __m512 {
        // SAFETY: the caller guarantees the bytes; `self` proves AVX-512.
        unsafe { decode_partial::<LAYOUT>(row, at, n) }
    }
}

/// The mask of the first `n` lanes.
fn lanes_below(n: usize) -> __mmask16 {
    (1 << n) - 1
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn sum_lanes(vectors: [__m512; 4]) -> [f32; 4] {
    let quarters = |v| {
        let half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
        _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps::<1>(half))
    };
    let [a, b, c, d] = vectors;
    let (ab, cd) = (_mm_hadd_ps(quarters(a), quarters(b)), _mm_hadd_ps(quarters(c), quarters(d)));
    let (sums, mut out) = (_mm_hadd_ps(ab, cd), [0.0; 4]);
    // SAFETY: `out` has 4 values.
    unsafe { _mm_storeu_ps(out.as_mut_ptr(), sums) };
    out
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn decode<const LAYOUT: u8>(row: *const u8, at: usize) -> __m512 {
    match layout::<LAYOUT>() {
        Layout::F32 => {
            // SAFETY: the caller guarantees 16 values at `at`.
            unsafe { _mm512_loadu_ps(row.cast::<f32>().wrapping_add(at)) }
        }
        Layout::F16 => {
            // SAFETY: as above, of 2 bytes each.
            let raw = unsafe { _mm256_loadu_si256(row.wrapping_add(2 * at).cast()) };
            _mm512_cvtph_ps(raw)
        }
        Layout::Bf16 => {
            // SAFETY: as above, of 2 bytes each.
            let raw = unsafe { _mm256_loadu_si256(row.wrapping_add(2 * at).cast()) };
            widen_bf16(raw)
        }
        Layout::Q8_0 => {
            let block = row.wrapping_add(at / q8_0::VALUES * q8_0::BYTES);
            // SAFETY: the block begins with its scale of 2 bytes.
            let scale = unsafe { block.cast::<i16>().read_unaligned() };
            let scale = _mm512_cvtph_ps(_mm256_set1_epi16(scale));
            let values = block.wrapping_add(2 + at % q8_0::VALUES).cast();
            // SAFETY: `at` is a multiple of 16, so 16 of the block's 32 bytes lie there.
            let raw = unsafe { _mm_loadu_si128(values) };
            _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(raw)), scale)
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn decode_partial<const LAYOUT: u8>(row: *const u8, at: usize, n: usize) -> __m512 {
    let values = row.wrapping_add(at * layout::<LAYOUT>().format().block_bytes());
    match layout::<LAYOUT>() {
        Layout::F32 => {
            // SAFETY: the caller guarantees the `n` values of the mask.
            unsafe { _mm512_maskz_loadu_ps(lanes_below(n), values.cast()) }
        }
        Layout::F16 => {
            // SAFETY: as above.
            let raw = unsafe { _mm256_maskz_loadu_epi16(lanes_below(n), values.cast()) };
            _mm512_cvtph_ps(raw)
        }
        Layout::Bf16 => {
            // SAFETY: as above.
            let raw = unsafe { _mm256_maskz_loadu_epi16(lanes_below(n), values.cast()) };
            widen_bf16(raw)
        }
        Layout::Q8_0 => unreachable!("quant blocks of 32 are whole vectors"),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn widen_bf16(raw: __m256i) -> __m512 {
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(raw)))
}

/// Loads 64 bytes from byte `at`.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn load_vector(bytes: &[u8], at: usize) -> __m512i {
    let bytes: &[u8; 64] = bytes[at..at + 64].try_into().expect("64 bytes");
    // SAFETY: the reference covers 64 bytes.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// Reinterprets the bytes as 16 pairs of BF16.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
pub(crate) fn as_bf16_pairs(vector: __m512i) -> __m512bh {
    // SAFETY: both are 64 bytes of which every pattern is a value.
    unsafe { std::mem::transmute(vector) }
}
