//! Blocks whose scales are whole: the products of two groups share a word, 16 bits each, and one
//! instruction scales and adds both. Where every multiplication waits for the units that multiply
//! bytes, as on Zen 4, a scale costs half of what it does in floats.

use std::arch::x86_64::*;

use super::{Next, Rows, Source, look_ahead};
use crate::kernels::quantize::HALF;
use crate::quant::{Of, Packing, STEP};

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
    let size = S::Packing::GROUP;
    let (pairs, quads) = (S::Packing::BLOCK / size / 2, size / 4);
    let half = [_mm512_set1_epi32(HALF); R];
    let mut products = [_mm512_setzero_si512(); R];
    let mut minimums = [_mm512_setzero_si512(); R];
    for (i, lines) in block.chunks(S::BYTES / pairs).enumerate() {
        look_ahead::<S, R, NEXT>(next, lines, 2 * size / STEP);
        let pair = b * pairs + i;
        let [even, odd] = [2 * i, 2 * i + 1].map(|group| group * size / STEP);
        // SAFETY: this function is compiled for all that sources ask for, so it runs only where the
        // CPU has that.
        let numbers = unsafe { S::number_vectors(block, odd) };
        let mut sums = match S::Packing::OFFSET > 0 {
            // SAFETY: each group of the `k / BLOCK` blocks has a sum.
            true => unsafe { rows.every(rows.sums + 2 * pair + 1) },
            false => half,
        };
        for q in 0..quads {
            // SAFETY: each group of the `k / BLOCK` blocks has `quads` words of numbers.
            let x = unsafe { rows.every((2 * pair + 1) * quads + q) };
            for r in 0..R {
                sums[r] = _mm512_dpbusd_epi32(sums[r], numbers[(quads + q) % 8], x[r]);
            }
        }
        let start = match S::Packing::OFFSET > 0 {
            // SAFETY: as for the other group's.
            true => unsafe { rows.every(rows.sums + 2 * pair) },
            false => half,
        };
        for r in 0..R {
            sums[r] = _mm512_add_epi32(_mm512_slli_epi32::<16>(sums[r]), start[r]);
        }
        // SAFETY: as for the other group's.
        let numbers = if even == odd { numbers } else { unsafe { S::number_vectors(block, even) } };
        for q in 0..quads {
            // SAFETY: as for the other group's.
            let x = unsafe { rows.every(2 * pair * quads + q) };
            for r in 0..R {
                sums[r] = _mm512_dpbusd_epi32(sums[r], numbers[q], x[r]);
            }
        }
        // SAFETY: as above.
        let scales = unsafe { S::pair_vector(block, Of::Scales, i) };
        for r in 0..R {
            // What kept the lower from taking from the upper goes again, in both halves.
            let sum = _mm512_xor_si512(sums[r], _mm512_set1_epi32(HALF << 16 | HALF));
            products[r] = _mm512_dpwssd_epi32(products[r], sum, scales);
        }
        if S::Packing::MINIMUMS {
            // SAFETY: as above.
            let multiples = unsafe { S::pair_vector(block, Of::Minimums, i) };
            // SAFETY: each pair of groups of the `k / BLOCK` blocks has a word.
            let x = unsafe { rows.every(rows.pairs + pair) };
            for r in 0..R {
                minimums[r] = _mm512_dpwssd_epi32(minimums[r], multiples, x[r]);
            }
        }
    }
    let mut parts = [_mm512_setzero_ps(); R];
    if S::Packing::MINIMUMS {
        // SAFETY: as for scales.
        let unit = unsafe { S::unit_vector(block, Of::Minimums) };
        for r in 0..R {
            parts[r] = _mm512_mul_ps(_mm512_cvtepi32_ps(minimums[r]), unit);
        }
    }
    // SAFETY: as for scales.
    let unit = unsafe { S::unit_vector(block, Of::Scales) };
    for r in 0..R {
        parts[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products[r]), unit, parts[r]);
    }
    parts
}
