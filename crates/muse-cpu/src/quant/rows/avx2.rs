//! 8 rows of a panel a vector. Products of two neighbours are added in 16 bits, which numbers below
//! 128 cannot overflow; bytes with an offset of 128 are multiplied by size and sign instead.

use std::arch::x86_64::*;

use crate::quant::activations::Row;
use crate::quant::panel::Numbers;
use crate::quant::{Of, PANEL, Packing, STEP, form, several};

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
    let row = |r: usize| Row::of(tile, (r, rows), k, form::<P>(), P::GROUP);
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
        let parts =
            if P::WHOLE { whole::<P, R>(block, &rows, b) } else { groups::<P, R>(block, &rows, b) };
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

/// The products of block `b`, group after group.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn groups<P: Packing, const R: usize>(
    block: &[u8],
    rows: &[Row<'_>; R],
    b: usize,
) -> [[__m256; 2]; R] {
    let mut parts = minimums::<P, R>(block, rows, b);
    for step in 0..P::BLOCK / STEP {
        let (numbers, scales) = (P::numbers(block, step), P::scales(block, step));
        for (row, parts) in rows.iter().zip(&mut parts) {
            for (half, part) in parts.iter_mut().enumerate() {
                for (i, scales) in scales.iter().take(STEP / P::GROUP).enumerate() {
                    let group = (b * P::BLOCK + step * STEP) / P::GROUP + i;
                    let sum = _mm256_cvtepi32_ps(sum::<P>(&numbers, row, group, half));
                    *part = _mm256_fmadd_ps(sum, load_f32(&scales.as_chunks().0[half]), *part);
                }
            }
        }
    }
    parts
}

/// The products of block `b`, whose scales are whole: of two groups at a time, which fit 16 bits.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn whole<P: Packing, const R: usize>(
    block: &[u8],
    rows: &[Row<'_>; R],
    b: usize,
) -> [[__m256; 2]; R] {
    let mut products = [[_mm256_setzero_si256(); 2]; R];
    let pairs = P::BLOCK / P::GROUP / 2;
    for i in 0..pairs {
        let pair = b * pairs + i;
        let (first, second) = (2 * i * P::GROUP / STEP, (2 * i + 1) * P::GROUP / STEP);
        let even = P::numbers(block, first);
        let other;
        let odd = if first == second {
            &even
        } else {
            other = P::numbers(block, second);
            &other
        };
        let multiples = P::pair(block, Of::Scales, i);
        for (row, products) in rows.iter().zip(&mut products) {
            for (half, product) in products.iter_mut().enumerate() {
                let low = sum::<P>(&even, row, 2 * pair, half);
                let high = _mm256_slli_epi32::<16>(sum::<P>(odd, row, 2 * pair + 1, half));
                let both = _mm256_blend_epi16::<0xaa>(low, high);
                let multiples = load_words(&multiples.as_chunks().0[half]);
                *product = _mm256_add_epi32(*product, _mm256_madd_epi16(both, multiples));
            }
        }
    }
    let mut parts = minimums::<P, R>(block, rows, b);
    let unit = P::unit(block, Of::Scales);
    for (parts, products) in parts.iter_mut().zip(products) {
        for (half, part) in parts.iter_mut().enumerate() {
            let unit = load_f32(&unit.as_chunks().0[half]);
            *part = _mm256_fmadd_ps(_mm256_cvtepi32_ps(products[half]), unit, *part);
        }
    }
    parts
}

/// The minimums of block `b`, if there are any.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn minimums<P: Packing, const R: usize>(
    block: &[u8],
    rows: &[Row<'_>; R],
    b: usize,
) -> [[__m256; 2]; R] {
    let mut parts = [[_mm256_setzero_ps(); 2]; R];
    if !P::MINIMUMS {
        return parts;
    }
    let groups = P::BLOCK / P::GROUP;
    let mut sums = [[_mm256_setzero_si256(); 2]; R];
    for i in (0..groups).step_by(2) {
        let multiples = match several::<P>() {
            true => P::pair(block, Of::Minimums, i / 2),
            false => [1; PANEL],
        };
        for (row, sums) in rows.iter().zip(&mut sums) {
            let low = row.sum(b * groups + i);
            let high = if several::<P>() { row.sum(b * groups + i + 1) } else { 0 };
            let x = _mm256_set1_epi32(low & 0xffff | high << 16);
            for (half, sum) in sums.iter_mut().enumerate() {
                let multiples = load_words(&multiples.as_chunks().0[half]);
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(x, multiples));
            }
        }
    }
    let unit = P::unit(block, Of::Minimums);
    for (parts, sums) in parts.iter_mut().zip(sums) {
        for (half, part) in parts.iter_mut().enumerate() {
            let unit = load_f32(&unit.as_chunks().0[half]);
            *part = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[half]), unit);
        }
    }
    parts
}

/// The products of a group with half the rows of the panel.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sum<P: Packing>(numbers: &Numbers, row: &Row<'_>, group: usize, half: usize) -> __m256i {
    let ones = _mm256_set1_epi16(1);
    // The sign carries the offset of 128.
    let start = if P::OFFSET == 128 { 0 } else { P::OFFSET * row.sum(group) };
    let mut sum = _mm256_set1_epi32(start);
    let first = group * P::GROUP / 4;
    for quad in first..first + P::GROUP / 4 {
        let w = load(&numbers[quad % 8].as_chunks().0[half]);
        let x = _mm256_set1_epi32(row.numbers(quad));
        let pairs = if P::OFFSET == 128 {
            let w = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
            _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
        } else {
            _mm256_maddubs_epi16(w, x)
        };
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
    }
    sum
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

#[inline]
#[target_feature(enable = "avx2")]
fn load_words(from: &[u32; 8]) -> __m256i {
    // SAFETY: 8 words are there.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}
