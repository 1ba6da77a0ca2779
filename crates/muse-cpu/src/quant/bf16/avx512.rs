//! `vdpbf16ps`: two chains a row, since one would wait for itself.

use std::arch::x86_64::*;

use super::PAIR;
use crate::kernels::simd::avx512::{pairs, vector};
use crate::quant::PANEL;
use crate::quant::rows::avx512::{Next, ahead};

/// Runs only where `kernels` was given proof of the instruction set.
pub(super) fn rows(panel: &[u8], k: usize, x: &[i32], next: &[u8], out: &mut [[f32; PANEL]]) {
    // SAFETY: `kernels` hands this function out for a detected instruction set only.
    unsafe { compiled(panel, k, x, next, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
fn compiled(panel: &[u8], k: usize, x: &[i32], next: &[u8], out: &mut [[f32; PANEL]]) {
    let width = k.div_ceil(2);
    match out.len() {
        8 if next.is_empty() => tile::<8, false>(panel, width, x, next, out),
        8 => tile::<8, true>(panel, width, x, next, out),
        4 => tile::<4, false>(panel, width, x, next, out),
        2 => tile::<2, false>(panel, width, x, next, out),
        1 => tile::<1, false>(panel, width, x, next, out),
        rows => unreachable!("a tile of {rows} rows"),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
// Iterators over rows are not unrolled, and sums would lie in memory.
#[allow(clippy::needless_range_loop)]
fn tile<const R: usize, const NEXT: bool>(
    panel: &[u8],
    width: usize,
    x: &[i32],
    next: &[u8],
    out: &mut [[f32; PANEL]],
) {
    let mut next = Next::new(next, (width / 2).max(1));
    let panel = &panel[..width * PAIR];
    assert_eq!(x.len(), R * width, "a tile of {R} rows");
    let start = x.as_ptr();
    // SAFETY: the assertion above found `R` rows of `width` words. Below `r < R`, and a panel of
    // `width` vectors has `width / 2` blocks of two, so that `2 i + 1 < width`.
    let word = |r: usize, at: usize| unsafe { start.wrapping_add(at * R + r).read() };
    let (mut even, mut odd) = ([_mm512_setzero_ps(); R], [_mm512_setzero_ps(); R]);
    let blocks = panel.chunks_exact(2 * PAIR);
    let rest = blocks.remainder();
    for (i, block) in blocks.enumerate() {
        if NEXT {
            next.ask();
        } else {
            ahead::<R>(block);
        }
        let w = pairs(vector(block, 0));
        for r in 0..R {
            even[r] = _mm512_dpbf16_ps(even[r], w, pairs(_mm512_set1_epi32(word(r, 2 * i))));
        }
        let w = pairs(vector(block, PAIR));
        for r in 0..R {
            odd[r] = _mm512_dpbf16_ps(odd[r], w, pairs(_mm512_set1_epi32(word(r, 2 * i + 1))));
        }
    }
    if !rest.is_empty() {
        let w = pairs(vector(rest, 0));
        for r in 0..R {
            even[r] = _mm512_dpbf16_ps(even[r], w, pairs(_mm512_set1_epi32(word(r, width - 1))));
        }
    }
    for (out, (even, odd)) in out.iter_mut().zip(even.into_iter().zip(odd)) {
        // SAFETY: there are 16 values.
        let before = unsafe { _mm512_loadu_ps(out.as_ptr()) };
        let sum = _mm512_add_ps(before, _mm512_add_ps(even, odd));
        // SAFETY: there is room for 16 values.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), sum) };
    }
}
