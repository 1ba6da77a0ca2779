//! The panel gemm in AVX2: 8 weight rows per vector. `vpmaddubsw` adds the products of two
//! neighbours in 16 bits, which quants below 128 cannot overflow. Quants with an offset of 128 are
//! multiplied without it, as magnitude and sign.

use std::arch::x86_64::*;

use crate::quant::activations::Int8Row;
use crate::quant::layout::{
    GroupParam, PackedLayout, STEP, activation_layout, has_integer_minimums,
};
use crate::quant::panel::{PANEL_ROWS, Quants};

/// `packed::kernels` returns it only for an [`crate::Isa`] that has these features.
pub(in crate::quant) fn gemm<L: PackedLayout>(
    panel: &[u8],
    k: usize,
    x: &[i32],
    _next: &[u8],
    out: &mut [[f32; PANEL_ROWS]],
) {
    // SAFETY: only `packed::kernels` names this function, for a detected instruction set that has
    // the features.
    unsafe { compiled::<L>(panel, k, x, out) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn compiled<L: PackedLayout>(panel: &[u8], k: usize, x: &[i32], out: &mut [[f32; PANEL_ROWS]]) {
    let rows = out.len();
    let row = |r: usize| Int8Row::new(x, (r, rows), k, activation_layout::<L>(), L::GROUP);
    let mut done = 0;
    while done + 4 <= rows {
        tile::<L, 4>(panel, std::array::from_fn(|r| row(done + r)), &mut out[done..]);
        done += 4;
    }
    while done < rows {
        tile::<L, 1>(panel, [row(done)], &mut out[done..]);
        done += 1;
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tile<L: PackedLayout, const R: usize>(
    panel: &[u8],
    rows: [Int8Row<'_>; R],
    out: &mut [[f32; PANEL_ROWS]],
) {
    let mut sums = [[_mm256_setzero_ps(); 2]; R];
    for (sums, out) in sums.iter_mut().zip(&*out) {
        *sums = [load_f32(&out.as_chunks().0[0]), load_f32(&out.as_chunks().0[1])];
    }
    for (b, block) in panel.chunks_exact(L::BYTES).enumerate() {
        let parts = if L::INTEGER_SCALES {
            integer_scales::<L, R>(block, &rows, b)
        } else {
            float_scales::<L, R>(block, &rows, b)
        };
        for ((row, parts), sums) in rows.iter().zip(parts).zip(&mut sums) {
            let scale = _mm256_set1_ps(row.scale(b));
            for (sum, part) in sums.iter_mut().zip(parts) {
                *sum = _mm256_fmadd_ps(part, scale, *sum);
            }
        }
    }
    for (out, sums) in out.iter_mut().zip(sums) {
        for (out, sum) in out.as_chunks_mut::<8>().0.iter_mut().zip(sums) {
            // SAFETY: the destination has 8 values.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr(), sum) };
        }
    }
}

/// The products of block `b` with float scales, group after group.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn float_scales<L: PackedLayout, const R: usize>(
    block: &[u8],
    rows: &[Int8Row<'_>; R],
    b: usize,
) -> [[__m256; 2]; R] {
    let mut parts = minimums::<L, R>(block, rows, b);
    for step in 0..L::BLOCK / STEP {
        let (quants, scales) = (L::quants(block, step), L::scales(block, step));
        for (row, parts) in rows.iter().zip(&mut parts) {
            for (half, part) in parts.iter_mut().enumerate() {
                for (i, scales) in scales.iter().take(STEP / L::GROUP).enumerate() {
                    let group = (b * L::BLOCK + step * STEP) / L::GROUP + i;
                    let sum = _mm256_cvtepi32_ps(sum::<L>(&quants, row, group, half));
                    *part = _mm256_fmadd_ps(sum, load_f32(&scales.as_chunks().0[half]), *part);
                }
            }
        }
    }
    parts
}

/// The products of block `b` with integer scales. The sums of products of a group fit 16 bits, so
/// that `vpmaddwd` scales and adds those of two groups.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn integer_scales<L: PackedLayout, const R: usize>(
    block: &[u8],
    rows: &[Int8Row<'_>; R],
    b: usize,
) -> [[__m256; 2]; R] {
    let mut products = [[_mm256_setzero_si256(); 2]; R];
    let pairs = L::BLOCK / L::GROUP / 2;
    for i in 0..pairs {
        let pair = b * pairs + i;
        let [even_step, odd_step] = [2 * i, 2 * i + 1].map(|group| group * L::GROUP / STEP);
        let even = L::quants(block, even_step);
        let other;
        let odd = if even_step == odd_step {
            &even
        } else {
            other = L::quants(block, odd_step);
            &other
        };
        let scales = L::integer_pair(block, GroupParam::Scale, i);
        for (row, products) in rows.iter().zip(&mut products) {
            for (half, product) in products.iter_mut().enumerate() {
                let low = sum::<L>(&even, row, 2 * pair, half);
                let high = _mm256_slli_epi32::<16>(sum::<L>(odd, row, 2 * pair + 1, half));
                let both = _mm256_blend_epi16::<0xaa>(low, high);
                let scales = load_words(&scales.as_chunks().0[half]);
                *product = _mm256_add_epi32(*product, _mm256_madd_epi16(both, scales));
            }
        }
    }
    let mut parts = minimums::<L, R>(block, rows, b);
    let factor = L::block_factor(block, GroupParam::Scale);
    for (parts, products) in parts.iter_mut().zip(products) {
        for (half, part) in parts.iter_mut().enumerate() {
            let factor = load_f32(&factor.as_chunks().0[half]);
            *part = _mm256_fmadd_ps(_mm256_cvtepi32_ps(products[half]), factor, *part);
        }
    }
    parts
}

/// Minus the minimums of block `b` times the sums of the activations.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn minimums<L: PackedLayout, const R: usize>(
    block: &[u8],
    rows: &[Int8Row<'_>; R],
    b: usize,
) -> [[__m256; 2]; R] {
    let mut parts = [[_mm256_setzero_ps(); 2]; R];
    if !L::HAS_MINIMUMS {
        return parts;
    }
    let groups = L::BLOCK / L::GROUP;
    let mut sums = [[_mm256_setzero_si256(); 2]; R];
    for i in (0..groups).step_by(2) {
        let integers = match has_integer_minimums::<L>() {
            true => L::integer_pair(block, GroupParam::Minimum, i / 2),
            false => [1; PANEL_ROWS],
        };
        for (row, sums) in rows.iter().zip(&mut sums) {
            let low = row.negated_sum(b * groups + i);
            let high =
                if has_integer_minimums::<L>() { row.negated_sum(b * groups + i + 1) } else { 0 };
            let x = _mm256_set1_epi32(low & 0xffff | high << 16);
            for (half, sum) in sums.iter_mut().enumerate() {
                let integers = load_words(&integers.as_chunks().0[half]);
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(x, integers));
            }
        }
    }
    let factor = L::block_factor(block, GroupParam::Minimum);
    for (parts, sums) in parts.iter_mut().zip(sums) {
        for (half, part) in parts.iter_mut().enumerate() {
            let factor = load_f32(&factor.as_chunks().0[half]);
            *part = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[half]), factor);
        }
    }
    parts
}

/// The sums of products of a group for half of the weight rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sum<L: PackedLayout>(quants: &Quants, row: &Int8Row<'_>, group: usize, half: usize) -> __m256i {
    let ones = _mm256_set1_epi16(1);
    // Quants with an offset of 128 are multiplied without it.
    let start = if L::OFFSET == 128 { 0 } else { L::OFFSET * row.negated_sum(group) };
    let mut sum = _mm256_set1_epi32(start);
    let first = group * L::GROUP / 4;
    for quad in first..first + L::GROUP / 4 {
        let w = load(&quants[quad % 8].as_chunks().0[half]);
        let x = _mm256_set1_epi32(row.quants(quad));
        let pairs = if L::OFFSET == 128 {
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
    // SAFETY: the reference covers 32 bytes.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_f32(from: &[f32; 8]) -> __m256 {
    // SAFETY: the reference covers 8 values.
    unsafe { _mm256_loadu_ps(from.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_words(from: &[u32; 8]) -> __m256i {
    // SAFETY: the reference covers 8 words.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}
