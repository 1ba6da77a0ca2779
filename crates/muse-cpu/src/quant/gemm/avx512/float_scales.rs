//! Blocks with float scales: the sum of products of each group is converted to float and scaled.

use std::arch::x86_64::*;

use super::prefetch::{Prefetcher, prefetch};
use super::source::BlockSource;
use super::tile::ActivationTile;
use crate::quant::layout::{GroupParam, PackedLayout, STEP, has_integer_minimums};
use crate::quant::panel::avx512::QuantVectors;

/// The products of block `b`, before they are multiplied by the scale of the activations.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
// The compiler does not unroll iterators over rows, and sums would be in memory.
#[allow(clippy::needless_range_loop)]
pub(super) fn products<S: BlockSource, const R: usize, const NEXT: bool>(
    block: &[u8],
    x: &ActivationTile<'_, R>,
    b: usize,
    next: &mut Prefetcher,
) -> [__m512; R] {
    let steps = S::Layout::BLOCK / STEP;
    let mut parts = match S::Layout::HAS_MINIMUMS {
        true => minimums::<S, R>(block, x, b),
        false => [_mm512_setzero_ps(); R],
    };
    for (step, lines) in block.chunks(S::BYTES / steps).enumerate() {
        prefetch::<S, R, NEXT>(next, lines, 1);
        // SAFETY: this function is compiled with the features that `BlockVectors` requires, so it
        // runs only where the CPU has them.
        let quants = unsafe { S::quant_vectors(block, step) };
        // SAFETY: as above.
        let scales = unsafe { S::scale_vectors(block, step) };
        add_step::<S, R>(&quants, &scales, x, b * steps + step, &mut parts);
    }
    parts
}

/// Minus the minimums of block `b` times the sums of the activations; `vpdpwssd` multiplies those
/// of two groups.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
// The compiler does not unroll iterators over rows, and sums would be in memory.
#[allow(clippy::needless_range_loop)]
fn minimums<S: BlockSource, const R: usize>(
    block: &[u8],
    x: &ActivationTile<'_, R>,
    b: usize,
) -> [__m512; R] {
    let pairs = S::Layout::BLOCK / S::Layout::GROUP / 2;
    let mut sums = match has_integer_minimums::<S::Layout>() {
        true => [_mm512_setzero_si512(); R],
        // SAFETY: the block is one group, which has a sum.
        false => unsafe { x.broadcast(x.sums + b) },
    };
    for i in 0..pairs {
        // SAFETY: this function is compiled with the features that `BlockVectors` requires, so it
        // runs only where the CPU has them.
        let integers = unsafe { S::integer_pair_vector(block, GroupParam::Minimum, i) };
        // SAFETY: each pair of groups of the `k / BLOCK` blocks has a word.
        let sum_pairs = unsafe { x.broadcast(x.sum_pairs + b * pairs + i) };
        for r in 0..R {
            sums[r] = _mm512_dpwssd_epi32(sums[r], integers, sum_pairs[r]);
        }
    }
    // SAFETY: as above.
    let factor = unsafe { S::block_factor_vector(block, GroupParam::Minimum) };
    let mut parts = [_mm512_setzero_ps(); R];
    for r in 0..R {
        parts[r] = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[r]), factor);
    }
    parts
}

/// Adds the products of a step of 32 values of K.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
// The compiler does not unroll iterators over rows, and sums would be in memory.
#[allow(clippy::needless_range_loop)]
fn add_step<S: BlockSource, const R: usize>(
    quants: &QuantVectors,
    scales: &[__m512; 2],
    x: &ActivationTile<'_, R>,
    step: usize,
    parts: &mut [__m512; R],
) {
    let size = S::Layout::GROUP;
    for group in 0..STEP / size {
        let mut sums = [_mm512_setzero_si512(); R];
        if S::Layout::OFFSET > 0 {
            // SAFETY: `step` is one of the `k / 32` steps of whole groups, as `PackedFormat::new`
            // checks, and each of their groups has a sum.
            let group_sums = unsafe { x.broadcast(x.sums + step * (STEP / size) + group) };
            let shift = _mm_cvtsi32_si128(S::Layout::OFFSET.trailing_zeros() as i32);
            for r in 0..R {
                sums[r] = _mm512_sll_epi32(group_sums[r], shift);
            }
        }
        for q in group * size / 4..(group + 1) * size / 4 {
            // SAFETY: each of the `k / 32` steps has 8 words of quants.
            let quad = unsafe { x.broadcast(8 * step + q) };
            for r in 0..R {
                sums[r] = _mm512_dpbusd_epi32(sums[r], quants[q], quad[r]);
            }
        }
        for r in 0..R {
            let sum = _mm512_cvtepi32_ps(sums[r]);
            parts[r] = _mm512_fmadd_ps(sum, scales[group], parts[r]);
        }
    }
}
