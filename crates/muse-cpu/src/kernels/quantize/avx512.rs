//! Quantization in AVX-512: 16 values per vector; bytes are summed by `vpsadbw`, their distances
//! from zero.

use std::arch::x86_64::*;

use super::layout::{Int8Layout, RowWriter};
use super::plain::{ROUND, block_scale, overflow_factor};

/// `super::select` returns it only for an [`crate::Isa`] that has these features.
pub(super) fn quantize(x: &[f32], layout: Int8Layout, words: &mut [i32], stride: usize) {
    // SAFETY: only `select` names this function, for a detected instruction set that has the
    // features.
    unsafe { compiled(x, layout, words, stride) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn compiled(x: &[f32], layout: Int8Layout, words: &mut [i32], stride: usize) {
    let mut row = RowWriter::new(x.len(), layout, words, stride);
    for (b, x) in x.chunks_exact(layout.block).enumerate() {
        let (scale, inverse) = block_scale(max_abs(x));
        let chunk = b * (layout.block / 32);
        let factor = overflow_factor(layout, write_block(x, inverse, &mut row, chunk));
        if factor < 1.0 {
            write_block(x, inverse * factor, &mut row, chunk);
        }
        row.set_scale(b, scale / factor);
    }
}

/// See `write_block` in [`super::plain`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2")]
fn write_block(x: &[f32], inverse: f32, row: &mut RowWriter<'_>, chunk: usize) -> i32 {
    let mut max_abs_sums = _mm256_setzero_si256();
    for (i, x) in x.as_chunks::<32>().0.iter().enumerate() {
        let bytes = quantize_32(x, inverse);
        let mut words = [0; 8];
        // SAFETY: the destination has 8 words.
        unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), bytes) };
        row.set_quants(chunk + i, words);
        let sums = sums_of_16(_mm256_xor_si256(bytes, _mm256_set1_epi8(-128)));
        let negated = _mm256_sub_epi32(_mm256_set1_epi32(16 * 128), sums);
        let halves = [_mm256_extract_epi32::<0>(negated), _mm256_extract_epi32::<4>(negated)];
        row.set_sums(chunk + i, halves);
        if row.integer_scales {
            max_abs_sums = _mm256_max_epi32(max_abs_sums, sums_of_16(_mm256_abs_epi8(bytes)));
        }
    }
    _mm256_extract_epi32::<0>(max_abs_sums).max(_mm256_extract_epi32::<4>(max_abs_sums))
}

/// The largest magnitude. The bits of magnitudes are ordered like the magnitudes, and those of NaN
/// come last.
#[inline]
#[target_feature(enable = "avx512f")]
fn max_abs(x: &[f32]) -> f32 {
    let mut top = _mm512_setzero_si512();
    for x in x.as_chunks::<16>().0 {
        let abs = _mm512_and_si512(_mm512_castps_si512(load(x)), _mm512_set1_epi32(i32::MAX));
        top = _mm512_max_epu32(top, abs);
    }
    f32::from_bits(_mm512_reduce_max_epu32(top))
}

/// The quants of 32 values.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2")]
fn quantize_32(x: &[f32; 32], inverse: f32) -> __m256i {
    let [first, second] = x.as_chunks::<16>().0 else { unreachable!("two halves") };
    _mm256_set_m128i(quantize_16(second, inverse), quantize_16(first, inverse))
}

/// The quants of 16 values.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2")]
fn quantize_16(x: &[f32; 16], inverse: f32) -> __m128i {
    // No fused multiply-add: the definition rounds the product.
    let scaled = _mm512_mul_ps(load(x), _mm512_set1_ps(inverse));
    let rounded = _mm512_add_ps(scaled, _mm512_set1_ps(ROUND));
    _mm512_cvtepi32_epi8(_mm512_castps_si512(rounded))
}

/// The sums of each 16 unsigned bytes, in the lowest words of the two halves.
#[inline]
#[target_feature(enable = "avx2")]
fn sums_of_16(bytes: __m256i) -> __m256i {
    let eights = _mm256_sad_epu8(bytes, _mm256_setzero_si256());
    _mm256_add_epi32(eights, _mm256_shuffle_epi32::<0b01_00_11_10>(eights))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(x: &[f32; 16]) -> __m512 {
    // SAFETY: the reference covers 16 values.
    unsafe { _mm512_loadu_ps(x.as_ptr()) }
}
