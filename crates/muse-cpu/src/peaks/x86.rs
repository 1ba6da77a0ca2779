//! Rounds of multiply-add instructions.

use std::arch::x86_64::*;
use std::hint::black_box;

use super::round::{CHAINS, STEPS};

/// Dot products of bytes.
pub(super) fn int8() -> usize {
    // SAFETY: only `rounds` names this function, for levels that have these instructions.
    unsafe { int8_compiled() }
}

#[target_feature(enable = "avx512f,avx512vnni")]
fn int8_compiled() -> usize {
    let factor = black_box(_mm512_set1_epi8(3));
    let mut sums = [_mm512_setzero_si512(); CHAINS];
    for _ in 0..STEPS {
        for sum in &mut sums {
            *sum = _mm512_dpbusd_epi32(*sum, factor, factor);
        }
    }
    black_box(sums);
    2 * 64 * STEPS * CHAINS
}

/// Dot products of BF16.
pub(super) fn bf16() -> usize {
    // SAFETY: only `rounds` names this function, for levels that have these instructions.
    unsafe { bf16_compiled() }
}

#[target_feature(enable = "avx512f,avx512bf16")]
fn bf16_compiled() -> usize {
    let one = _mm512_set1_ps(1.0);
    let factor = black_box(_mm512_cvtne2ps_pbh(one, one));
    let mut sums = [_mm512_setzero_ps(); CHAINS];
    for _ in 0..STEPS {
        for sum in &mut sums {
            *sum = _mm512_dpbf16_ps(*sum, factor, factor);
        }
    }
    black_box(sums);
    2 * 32 * STEPS * CHAINS
}

/// Fused multiply-adds of 16 `f32`.
pub(super) fn f32_avx512() -> usize {
    // SAFETY: only `rounds` names this function, for levels that have these instructions.
    unsafe { f32_avx512_compiled() }
}

#[target_feature(enable = "avx512f")]
fn f32_avx512_compiled() -> usize {
    let factor = black_box(_mm512_set1_ps(0.5));
    let mut sums = [_mm512_setzero_ps(); CHAINS];
    for _ in 0..STEPS {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, factor, factor);
        }
    }
    black_box(sums);
    2 * 16 * STEPS * CHAINS
}

/// Fused multiply-adds of 8 `f32`.
pub(super) fn f32_avx2() -> usize {
    // SAFETY: only `rounds` names this function, for levels that have these instructions.
    unsafe { f32_avx2_compiled() }
}

#[target_feature(enable = "avx2,fma")]
fn f32_avx2_compiled() -> usize {
    let factor = black_box(_mm256_set1_ps(0.5));
    let mut sums = [_mm256_setzero_ps(); CHAINS];
    for _ in 0..STEPS {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(*sum, factor, factor);
        }
    }
    black_box(sums);
    2 * 8 * STEPS * CHAINS
}
