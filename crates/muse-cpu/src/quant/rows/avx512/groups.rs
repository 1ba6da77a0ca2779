//! Blocks whose groups have scales of their own, in floats.

use std::arch::x86_64::*;

use super::{Next, Numbers, Rows, Source, look_ahead};
use crate::quant::{Of, Packing, STEP, several};

/// The products of block `b`, not yet scaled as the activations are.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
// Iterators over rows are not unrolled, and sums would lie in memory.
#[allow(clippy::needless_range_loop)]
pub(super) fn products<S: Source, const R: usize, const NEXT: bool>(
    block: &[u8],
    rows: &Rows<'_, R>,
    b: usize,
    next: &mut Next,
) -> [__m512; R] {
    let steps = S::Packing::BLOCK / STEP;
    let mut parts = match S::Packing::MINIMUMS {
        true => minimums::<S, R>(block, rows, b),
        false => [_mm512_setzero_ps(); R],
    };
    for (step, lines) in block.chunks(S::BYTES / steps).enumerate() {
        look_ahead::<S, R, NEXT>(next, lines, 1);
        // SAFETY: this function is compiled for all that sources ask for, so it runs only where the
        // CPU has that.
        let numbers = unsafe { S::number_vectors(block, step) };
        // SAFETY: as for numbers.
        let scales = unsafe { S::scale_vectors(block, step) };
        add_step::<S, R>(&numbers, &scales, rows, b * steps + step, &mut parts);
    }
    parts
}

/// The minimums of block `b`: one, or two groups an instruction.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
// Iterators over rows are not unrolled, and sums would lie in memory.
#[allow(clippy::needless_range_loop)]
fn minimums<S: Source, const R: usize>(block: &[u8], rows: &Rows<'_, R>, b: usize) -> [__m512; R] {
    let pairs = S::Packing::BLOCK / S::Packing::GROUP / 2;
    let mut sums = match several::<S::Packing>() {
        true => [_mm512_setzero_si512(); R],
        // SAFETY: the block is one group, which has a sum.
        false => unsafe { rows.every(rows.sums + b) },
    };
    for i in 0..pairs {
        // SAFETY: this function is compiled for all that sources ask for, so it runs only where the
        // CPU has that.
        let multiples = unsafe { S::pair_vector(block, Of::Minimums, i) };
        // SAFETY: each pair of groups of the `k / BLOCK` blocks has a word.
        let x = unsafe { rows.every(rows.pairs + b * pairs + i) };
        for r in 0..R {
            sums[r] = _mm512_dpwssd_epi32(sums[r], multiples, x[r]);
        }
    }
    // SAFETY: as for numbers of steps.
    let unit = unsafe { S::unit_vector(block, Of::Minimums) };
    let mut parts = [_mm512_setzero_ps(); R];
    for r in 0..R {
        parts[r] = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[r]), unit);
    }
    parts
}

/// The products of 32 values of K.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
// Iterators over rows are not unrolled, and sums would lie in memory.
#[allow(clippy::needless_range_loop)]
fn add_step<S: Source, const R: usize>(
    numbers: &Numbers,
    scales: &[__m512; 2],
    rows: &Rows<'_, R>,
    at: usize,
    parts: &mut [__m512; R],
) {
    let size = S::Packing::GROUP;
    for group in 0..STEP / size {
        let mut sums = [_mm512_setzero_si512(); R];
        if S::Packing::OFFSET > 0 {
            // SAFETY: `at` is one of the `k / 32` steps: blocks have equal ones, as `quant::kind`
            // checks. Each of their groups has a sum.
            let x = unsafe { rows.every(rows.sums + at * (STEP / size) + group) };
            let shift = _mm_cvtsi32_si128(S::Packing::OFFSET.trailing_zeros() as i32);
            for r in 0..R {
                sums[r] = _mm512_sll_epi32(x[r], shift);
            }
        }
        for q in group * size / 4..(group + 1) * size / 4 {
            // SAFETY: each of the `k / 32` steps has 8 words of numbers.
            let x = unsafe { rows.every(8 * at + q) };
            for r in 0..R {
                sums[r] = _mm512_dpbusd_epi32(sums[r], numbers[q], x[r]);
            }
        }
        for r in 0..R {
            let sum = _mm512_cvtepi32_ps(sums[r]);
            parts[r] = _mm512_fmadd_ps(sum, scales[group], parts[r]);
        }
    }
}
