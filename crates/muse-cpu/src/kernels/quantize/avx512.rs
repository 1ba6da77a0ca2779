//! 16 values a vector; sums of bytes by products with ones.

use std::arch::x86_64::*;

use super::{LEAST, MOST, Places, ROUND, put_pairs, put_sums};

/// Runs only where [`super::select`] was given proof of the instruction set.
pub(super) fn quantize(x: &[f32], block: usize, words: &mut [i32], stride: usize) {
    // SAFETY: `select` hands this function out for a detected instruction set only.
    unsafe { compiled(x, block, words, stride) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn compiled(x: &[f32], block: usize, words: &mut [i32], stride: usize) {
    let places = Places::of(x.len(), block);
    for (b, x) in x.chunks_exact(block).enumerate() {
        let largest = largest(x);
        let inverse = if largest < LEAST { 0.0 } else { MOST / largest };
        words[(places.scales + b) * stride] = (largest / MOST).to_bits() as i32;
        for (i, x) in x.as_chunks::<32>().0.iter().enumerate() {
            let at = b * (block / 32) + i;
            let (numbers, sums) = numbers(x, inverse);
            let to = words[8 * at * stride..].iter_mut().step_by(stride);
            to.zip(numbers).for_each(|(word, four)| *word = four);
            put_sums(sums.map(|sum| -sum), &places, at, words, stride);
        }
        if block > 32 {
            put_pairs(&places, b * (block / 32)..(b + 1) * (block / 32), words, stride);
        }
    }
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

/// 32 numbers, four a word, and the sums of the two halves.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2")]
fn numbers(x: &[f32; 32], inverse: f32) -> ([i32; 8], [i32; 2]) {
    let [first, second] = [0, 1].map(|half| {
        let x = load(&x.as_chunks::<16>().0[half]);
        // Not fused: the definition rounds the product.
        let scaled = _mm512_mul_ps(x, _mm512_set1_ps(inverse));
        let rounded = _mm512_add_ps(scaled, _mm512_set1_ps(ROUND));
        _mm512_cvtepi32_epi8(_mm512_castps_si512(rounded))
    });
    let bytes = _mm256_set_m128i(second, first);
    let pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
    let quads = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    let eights = _mm256_add_epi32(quads, _mm256_shuffle_epi32::<0b01_00_11_10>(quads));
    let halves = _mm256_add_epi32(eights, _mm256_shuffle_epi32::<0b10_11_00_01>(eights));
    let sums = [_mm256_extract_epi32::<0>(halves), _mm256_extract_epi32::<4>(halves)];
    let mut words = [0; 8];
    // SAFETY: there is room for 8 words.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), bytes) };
    (words, sums)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(x: &[f32; 16]) -> __m512 {
    // SAFETY: 16 values are there.
    unsafe { _mm512_loadu_ps(x.as_ptr()) }
}
