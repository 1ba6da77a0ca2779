//! 16 values a vector; sums of bytes by differences from zero.

use std::arch::x86_64::*;

use super::{Form, Places, ROUND, To, lighter, unit};

/// Runs only where [`super::select`] was given proof of the instruction set.
pub(super) fn quantize(x: &[f32], form: Form, words: &mut [i32], stride: usize) {
    // SAFETY: `select` hands this function out for a detected instruction set only.
    unsafe { compiled(x, form, words, stride) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn compiled(x: &[f32], form: Form, words: &mut [i32], stride: usize) {
    let mut to = To { slices: Places::of(x.len(), form), whole: form.whole, words, stride };
    for (b, x) in x.chunks_exact(form.block).enumerate() {
        let (scale, inverse) = unit(largest(x));
        let at = b * (form.block / 32);
        let factor = lighter(form, block(x, inverse, &mut to, at));
        if factor < 1.0 {
            block(x, inverse * factor, &mut to, at);
        }
        to.scale(b, scale / factor);
    }
}

/// See [`super::numbers`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2")]
fn block(x: &[f32], inverse: f32, to: &mut To<'_>, at: usize) -> i32 {
    let mut most = _mm256_setzero_si256();
    for (i, x) in x.as_chunks::<32>().0.iter().enumerate() {
        let bytes = numbers(x, inverse);
        let mut words = [0; 8];
        // SAFETY: there is room for 8 words.
        unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), bytes) };
        to.numbers(at + i, words);
        let sums = sixteens(_mm256_xor_si256(bytes, _mm256_set1_epi8(-128)));
        let minus = _mm256_sub_epi32(_mm256_set1_epi32(16 * 128), sums);
        to.sums(at + i, [_mm256_extract_epi32::<0>(minus), _mm256_extract_epi32::<4>(minus)]);
        if to.whole {
            most = _mm256_max_epi32(most, sixteens(_mm256_abs_epi8(bytes)));
        }
    }
    _mm256_extract_epi32::<0>(most).max(_mm256_extract_epi32::<4>(most))
}

/// The largest size of values; their bits are ordered like them, and those of NaN come last.
#[inline]
#[target_feature(enable = "avx512f")]
fn largest(x: &[f32]) -> f32 {
    let mut top = _mm512_setzero_si512();
    for x in x.as_chunks::<16>().0 {
        let size = _mm512_and_si512(_mm512_castps_si512(load(x)), _mm512_set1_epi32(i32::MAX));
        top = _mm512_max_epu32(top, size);
    }
    f32::from_bits(_mm512_reduce_max_epu32(top))
}

/// 32 numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2")]
fn numbers(x: &[f32; 32], inverse: f32) -> __m256i {
    let [first, second] = x.as_chunks::<16>().0 else { unreachable!("two halves") };
    _mm256_set_m128i(half(second, inverse), half(first, inverse))
}

/// 16 of them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2")]
fn half(x: &[f32; 16], inverse: f32) -> __m128i {
    // Not fused: the definition rounds the product.
    let scaled = _mm512_mul_ps(load(x), _mm512_set1_ps(inverse));
    let rounded = _mm512_add_ps(scaled, _mm512_set1_ps(ROUND));
    _mm512_cvtepi32_epi8(_mm512_castps_si512(rounded))
}

/// The sums of 16 unsigned bytes, in the lowest words of the halves.
#[inline]
#[target_feature(enable = "avx2")]
fn sixteens(bytes: __m256i) -> __m256i {
    let eights = _mm256_sad_epu8(bytes, _mm256_setzero_si256());
    _mm256_add_epi32(eights, _mm256_shuffle_epi32::<0b01_00_11_10>(eights))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(x: &[f32; 16]) -> __m512 {
    // SAFETY: 16 values are there.
    unsafe { _mm512_loadu_ps(x.as_ptr()) }
}
