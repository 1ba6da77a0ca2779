//! The BF16 gemm with `vdpbf16ps`: two accumulators per row, since one would be limited by the
//! latency of the instruction.

use std::arch::x86_64::*;

use crate::kernels::simd::avx512::{as_bf16_pairs, load_vector};
use crate::quant::gemm::avx512::{Prefetcher, prefetch_ahead};
use crate::quant::panel::{PANEL_ROWS, VECTOR_BYTES};

/// `super::kernels` returns it only for an [`crate::Isa`] with BF16 dot products.
pub(super) fn gemm(panel: &[u8], k: usize, x: &[i32], next: &[u8], out: &mut [[f32; PANEL_ROWS]]) {
    // SAFETY: only `kernels` names this function, for a detected instruction set that has the
    // features.
    unsafe { compiled(panel, k, x, next, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
fn compiled(panel: &[u8], k: usize, x: &[i32], next: &[u8], out: &mut [[f32; PANEL_ROWS]]) {
    let vectors = k.div_ceil(2);
    match out.len() {
        8 if next.is_empty() => tile::<8, false>(panel, vectors, x, next, out),
        8 => tile::<8, true>(panel, vectors, x, next, out),
        4 => tile::<4, false>(panel, vectors, x, next, out),
        2 => tile::<2, false>(panel, vectors, x, next, out),
        1 => tile::<1, false>(panel, vectors, x, next, out),
        rows => unreachable!("a tile of {rows} rows"),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
// The compiler does not unroll iterators over rows, and sums would be in memory.
#[allow(clippy::needless_range_loop)]
fn tile<const R: usize, const NEXT: bool>(
    panel: &[u8],
    vectors: usize,
    x: &[i32],
    next: &[u8],
    out: &mut [[f32; PANEL_ROWS]],
) {
    let mut next = Prefetcher::new(next, (vectors / 2).max(1));
    let panel = &panel[..vectors * VECTOR_BYTES];
    assert_eq!(x.len(), R * vectors, "a tile of {R} rows");
    let start = x.as_ptr();
    // SAFETY: the assertion above checked that there are `R` rows of `vectors` words. Below `r <
    // R`, and there are `vectors / 2` pairs of vectors, so that `2 i + 1 < vectors`.
    let word = |r: usize, at: usize| unsafe { start.wrapping_add(at * R + r).read() };
    let (mut even, mut odd) = ([_mm512_setzero_ps(); R], [_mm512_setzero_ps(); R]);
    let pairs = panel.chunks_exact(2 * VECTOR_BYTES);
    let rest = pairs.remainder();
    for (i, pair) in pairs.enumerate() {
        if NEXT {
            next.prefetch();
        } else {
            prefetch_ahead::<R>(pair);
        }
        let w = as_bf16_pairs(load_vector(pair, 0));
        for r in 0..R {
            even[r] =
                _mm512_dpbf16_ps(even[r], w, as_bf16_pairs(_mm512_set1_epi32(word(r, 2 * i))));
        }
        let w = as_bf16_pairs(load_vector(pair, VECTOR_BYTES));
        for r in 0..R {
            odd[r] =
                _mm512_dpbf16_ps(odd[r], w, as_bf16_pairs(_mm512_set1_epi32(word(r, 2 * i + 1))));
        }
    }
    if !rest.is_empty() {
        let w = as_bf16_pairs(load_vector(rest, 0));
        for r in 0..R {
            even[r] = _mm512_dpbf16_ps(
                even[r],
                w,
                as_bf16_pairs(_mm512_set1_epi32(word(r, vectors - 1))),
            );
        }
    }
    for (out, (even, odd)) in out.iter_mut().zip(even.into_iter().zip(odd)) {
        // SAFETY: the slice has 16 values.
        let before = unsafe { _mm512_loadu_ps(out.as_ptr()) };
        let sum = _mm512_add_ps(before, _mm512_add_ps(even, odd));
        // SAFETY: the destination has 16 values.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), sum) };
    }
}
