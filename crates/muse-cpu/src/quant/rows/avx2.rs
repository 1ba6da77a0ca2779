//! 8 rows of a panel a vector. Products of two neighbours are added in 16 bits, which numbers below
//! 128 cannot overflow; bytes with an offset of 128 are multiplied by size and sign instead.

use std::arch::x86_64::*;

use crate::quant::activations::Row;
use crate::quant::{Minimums, PANEL, Packing, STEP, Step};

/// Runs only where [`super::kernels`] was given proof of the instruction set.
pub(super) fn rows<P: Packing>(
    panel: &[u8],
    k: usize,
    tile: &[i32],
    _next: &[u8],
    out: &mut [[f32; PANEL]],
) {
    // SAFETY: `kernels` hands this function out for a detected instruction set only.
    unsafe { compiled::<P>(panel, k, tile, out) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn compiled<P: Packing>(panel: &[u8], k: usize, tile: &[i32], out: &mut [[f32; PANEL]]) {
    let rows = out.len();
    let row = |r: usize| Row::of(tile, (r, rows), k, P::BLOCK, P::GROUP);
    let mut done = 0;
    while done + 4 <= rows {
        few::<P, 4>(panel, std::array::from_fn(|r| row(done + r)), &mut out[done..]);
        done += 4;
    }
    while done < rows {
        few::<P, 1>(panel, [row(done)], &mut out[done..]);
        done += 1;
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn few<P: Packing, const R: usize>(panel: &[u8], rows: [Row<'_>; R], out: &mut [[f32; PANEL]]) {
    let mut sums = [[_mm256_setzero_ps(); 2]; R];
    for (sums, out) in sums.iter_mut().zip(&*out) {
        *sums = [load_f32(&out.as_chunks().0[0]), load_f32(&out.as_chunks().0[1])];
    }
    for (b, block) in panel.chunks_exact(P::BYTES).enumerate() {
        let mut parts = [[_mm256_setzero_ps(); 2]; R];
        if P::MINIMUMS {
            let minimums = P::minimums(block);
            for (row, parts) in rows.iter().zip(&mut parts) {
                *parts = [0, 1].map(|half| take_off::<P>(&minimums, row, b, half));
            }
        }
        for step in 0..P::BLOCK / STEP {
            let unpacked = P::unpack(block, step);
            for (row, parts) in rows.iter().zip(&mut parts) {
                for (half, part) in parts.iter_mut().enumerate() {
                    let at = b * P::BLOCK / STEP + step;
                    *part = add_step::<P>(&unpacked, row, at, half, *part);
                }
            }
        }
        for ((row, parts), sums) in rows.iter().zip(parts).zip(&mut sums) {
            let scale = _mm256_set1_ps(row.scale(b));
            for (sum, part) in sums.iter_mut().zip(parts) {
                *sum = _mm256_fmadd_ps(part, scale, *sum);
            }
        }
    }
    for (out, sums) in out.iter_mut().zip(sums) {
        for (out, sum) in out.as_chunks_mut::<8>().0.iter_mut().zip(sums) {
            // SAFETY: there is room for 8 values.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr(), sum) };
        }
    }
}

/// The products of 32 values of K with half the rows of the panel.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_step<P: Packing>(
    unpacked: &Step,
    row: &Row<'_>,
    at: usize,
    half: usize,
    mut part: __m256,
) -> __m256 {
    let ones = _mm256_set1_epi16(1);
    for group in 0..STEP / P::GROUP {
        let minus = row.sum(at * STEP / P::GROUP + group);
        // The sign carries the offset of 128.
        let start = if P::OFFSET == 128 { 0 } else { P::OFFSET * minus };
        let mut sum = _mm256_set1_epi32(start);
        let quads = group * P::GROUP / 4..(group + 1) * P::GROUP / 4;
        for q in quads {
            let w = load(&unpacked.numbers[q].as_chunks().0[half]);
            let x = _mm256_set1_epi32(row.numbers(8 * at + q));
            let pairs = if P::OFFSET == 128 {
                let w = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
                _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
            } else {
                _mm256_maddubs_epi16(w, x)
            };
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
        }
        let scale = load_f32(&unpacked.scales[group].as_chunks().0[half]);
        part = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), scale, part);
    }
    part
}

/// The minimums of block `b` of half the rows of the panel.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn take_off<P: Packing>(minimums: &Minimums, row: &Row<'_>, b: usize, half: usize) -> __m256 {
    let pairs = P::BLOCK / P::GROUP / 2;
    let mut sum = _mm256_setzero_si256();
    for (i, numbers) in minimums.pairs.iter().take(pairs).enumerate() {
        // SAFETY: the half of 16 words has 32 bytes.
        let numbers = unsafe { _mm256_loadu_si256(numbers[8 * half..][..8].as_ptr().cast()) };
        let x = _mm256_set1_epi32(row.pair(b * pairs + i));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(numbers, x));
    }
    if P::BLOCK == P::GROUP {
        sum = _mm256_set1_epi32(row.sum(b));
    }
    _mm256_mul_ps(_mm256_cvtepi32_ps(sum), load_f32(&minimums.unit.as_chunks().0[half]))
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(from: &[u8; 32]) -> __m256i {
    // SAFETY: 32 bytes are there.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_f32(from: &[f32; 8]) -> __m256 {
    // SAFETY: 8 values are there.
    unsafe { _mm256_loadu_ps(from.as_ptr()) }
}
