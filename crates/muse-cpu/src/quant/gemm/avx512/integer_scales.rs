//! Blocks with integer scales: the sums of products of two groups share a word, 16 bits each, and
//! one `vpdpwssd` scales and adds both. Where multiplications limit the speed, as on Zen 4, scaling
//! costs half of what it does in floats.

use std::arch::x86_64::*;

use super::prefetch::{Prefetcher, prefetch};
use super::source::BlockSource;
use super::tile::ActivationTile;
use crate::kernels::quantize::BORROW_BIAS;
use crate::quant::layout::{GroupParam, PackedLayout, STEP};

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
    let size = S::Layout::GROUP;
    let (pairs, quads) = (S::Layout::BLOCK / size / 2, size / 4);
    let bias = [_mm512_set1_epi32(BORROW_BIAS); R];
    let mut products = [_mm512_setzero_si512(); R];
    let mut minimums = [_mm512_setzero_si512(); R];
    for (i, lines) in block.chunks(S::BYTES / pairs).enumerate() {
        prefetch::<S, R, NEXT>(next, lines, 2 * size / STEP);
        let pair = b * pairs + i;
        let [even_step, odd_step] = [2 * i, 2 * i + 1].map(|group| group * size / STEP);
        // SAFETY: this function is compiled with the features that `BlockVectors` requires, so it
        // runs only where the CPU has them.
        let quants = unsafe { S::quant_vectors(block, odd_step) };
        let mut sums = match S::Layout::OFFSET > 0 {
            // SAFETY: each group of the `k / BLOCK` blocks has a sum.
            true => unsafe { x.broadcast(x.sums + 2 * pair + 1) },
            false => bias,
        };
        for q in 0..quads {
            // SAFETY: each group of the `k / BLOCK` blocks has `quads` words of quants.
            let quad = unsafe { x.broadcast((2 * pair + 1) * quads + q) };
            for r in 0..R {
                sums[r] = _mm512_dpbusd_epi32(sums[r], quants[(quads + q) % 8], quad[r]);
            }
        }
        let start = match S::Layout::OFFSET > 0 {
            // SAFETY: as for the odd group.
            true => unsafe { x.broadcast(x.sums + 2 * pair) },
            false => bias,
        };
        for r in 0..R {
            sums[r] = _mm512_add_epi32(_mm512_slli_epi32::<16>(sums[r]), start[r]);
        }
        let quants = match even_step == odd_step {
            true => quants,
            // SAFETY: as for the odd group.
            false => unsafe { S::quant_vectors(block, even_step) },
        };
        for q in 0..quads {
            // SAFETY: as for the odd group.
            let quad = unsafe { x.broadcast(2 * pair * quads + q) };
            for r in 0..R {
                sums[r] = _mm512_dpbusd_epi32(sums[r], quants[q], quad[r]);
            }
        }
        // SAFETY: as above.
        let scales = unsafe { S::integer_pair_vector(block, GroupParam::Scale, i) };
        for r in 0..R {
            // Remove the bias that prevents a borrow between 16-bit halves, in both halves.
            let bias = _mm512_set1_epi32(BORROW_BIAS << 16 | BORROW_BIAS);
            let sum = _mm512_xor_si512(sums[r], bias);
            products[r] = _mm512_dpwssd_epi32(products[r], sum, scales);
        }
        if S::Layout::HAS_MINIMUMS {
            // SAFETY: as above.
            let integers = unsafe { S::integer_pair_vector(block, GroupParam::Minimum, i) };
            // SAFETY: each pair of groups of the `k / BLOCK` blocks has a word.
            let sum_pairs = unsafe { x.broadcast(x.sum_pairs + pair) };
            for r in 0..R {
                minimums[r] = _mm512_dpwssd_epi32(minimums[r], integers, sum_pairs[r]);
            }
        }
    }
    let mut parts = [_mm512_setzero_ps(); R];
    if S::Layout::HAS_MINIMUMS {
        // SAFETY: as above.
        let factor = unsafe { S::block_factor_vector(block, GroupParam::Minimum) };
        for r in 0..R {
            parts[r] = _mm512_mul_ps(_mm512_cvtepi32_ps(minimums[r]), factor);
        }
    }
    // SAFETY: as above.
    let factor = unsafe { S::block_factor_vector(block, GroupParam::Scale) };
    for r in 0..R {
        parts[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products[r]), factor, parts[r]);
    }
    parts
}
