//! Attention in BF16 with `vdpbf16ps`: tiles of 4 rows by 4 vectors; the sums take 16 of 32
//! registers.

use std::arch::x86_64::*;
use std::f32::consts::{LN_2, LOG2_E};
use std::ops::Range;

use muse_core::contract::KV_BLOCK_SIZE;

use super::layout::{LANES, PAIR_BYTES};
use crate::kernels::math;
use crate::kernels::simd::avx512::{as_bf16_pairs, load_vector};
use crate::kernels::softmax::SoftmaxState;

/// Columns of queries that are rounded at a time.
const COLS: usize = 128;
/// Vectors of 16 keys of a KV block.
const GROUPS: usize = KV_BLOCK_SIZE / LANES;
/// The series of `2ˣ` for `|x| <= ½`: powers of `ln 2` over factorials, the highest power first.
const SERIES: [f32; 6] = [1.333_355_8e-3, 9.618_129e-3, 5.550_411e-2, 0.240_226_5, LN_2, 1.0];
/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes of a vector.
const VECTOR: usize = LANES * PAIR_BYTES;

/// `super::select` returns it only for an [`crate::Isa`] that has these features.
pub(super) fn qk_scores(q: &[f32], k: &[u8], dim: usize, next: &[u8], scores: &mut [f32]) {
    let rows = q.len() / dim;
    assert!(dim.is_multiple_of(LANES) && q.len() == rows * dim, "rows of {dim} columns");
    assert_eq!(
        (k.len(), scores.len()),
        (KV_BLOCK_SIZE * dim * 2, rows * KV_BLOCK_SIZE),
        "a KV block"
    );
    // SAFETY: only `select` names this function, for a detected instruction set that has the
    // features.
    unsafe { score_all_rows(q, k, dim, next, scores) }
}

/// `super::select` returns it only for an [`crate::Isa`] that has these features.
pub(super) fn softmax_v_sum(
    scores: &[f32],
    v: &[u8],
    visible: Range<usize>,
    scale: f32,
    states: &mut [SoftmaxState],
    next: &[u8],
    out: &mut [f32],
) {
    let (rows, dim) = (states.len(), out.len() / states.len());
    assert!(dim.is_multiple_of(LANES), "{dim} columns are whole vectors");
    assert!(
        !visible.is_empty() && visible.end <= KV_BLOCK_SIZE,
        "positions {visible:?} of a KV block"
    );
    assert_eq!((scores.len(), out.len()), (rows * KV_BLOCK_SIZE, rows * dim), "whole rows");
    assert_eq!(v.len(), KV_BLOCK_SIZE * dim * 2, "a KV block");
    // SAFETY: only `select` names this function, for a detected instruction set that has the
    // features.
    unsafe { sum_all_rows(scores, v, visible, scale, states, dim, next, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
fn score_all_rows(q: &[f32], k: &[u8], dim: usize, next: &[u8], scores: &mut [f32]) {
    let mut next = next.as_ptr();
    let (q_tiles, scores_tiles) = (q.chunks(4 * dim), scores.chunks_mut(4 * KV_BLOCK_SIZE));
    for (q, scores) in q_tiles.zip(scores_tiles) {
        match q.len() / dim {
            4 => score_tile::<4>(q, k, dim, next, scores),
            3 => score_tile::<3>(q, k, dim, next, scores),
            2 => score_tile::<2>(q, k, dim, next, scores),
            _ => score_tile::<1>(q, k, dim, next, scores),
        }
        next = next.wrapping_add(dim / 2 * LINE);
    }
}

/// The scores of `R` queries with all keys of a KV block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
// The compiler does not unroll iterators over rows, and sums would be in memory.
#[allow(clippy::needless_range_loop)]
fn score_tile<const R: usize>(
    q: &[f32],
    k: &[u8],
    dim: usize,
    mut next: *const u8,
    scores: &mut [f32],
) {
    let mut words = [[0_i32; COLS / 2]; R];
    let mut sums = [[_mm512_setzero_ps(); GROUPS]; R];
    for (first, keys) in (0..dim).step_by(COLS).zip(k.chunks(COLS / 2 * GROUPS * VECTOR)) {
        for (words, q) in words.iter_mut().zip(q.chunks_exact(dim)) {
            let vectors = q[first..dim.min(first + COLS)].as_chunks::<LANES>().0;
            for (words, q) in words.as_chunks_mut().0.iter_mut().zip(vectors) {
                // SAFETY: the slice has 16 values.
                store_bf16(unsafe { _mm512_loadu_ps(q.as_ptr()) }, words);
            }
        }
        for (i, keys) in keys.chunks_exact(GROUPS * VECTOR).enumerate() {
            next = prefetch(next);
            let keys: [_; GROUPS] = [0, 1, 2, 3].map(|group| load_vector(keys, group * VECTOR));
            for r in 0..R {
                let q = as_bf16_pairs(_mm512_set1_epi32(words[r][i]));
                for group in 0..GROUPS {
                    sums[r][group] =
                        _mm512_dpbf16_ps(sums[r][group], as_bf16_pairs(keys[group]), q);
                }
            }
        }
    }
    for (scores, sums) in scores.chunks_exact_mut(KV_BLOCK_SIZE).zip(sums) {
        for (scores, sum) in scores.chunks_exact_mut(LANES).zip(sums) {
            // SAFETY: the destination has 16 values.
            unsafe { _mm512_storeu_ps(scores.as_mut_ptr(), sum) };
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
fn sum_all_rows(
    scores: &[f32],
    v: &[u8],
    visible: Range<usize>,
    scale: f32,
    states: &mut [SoftmaxState],
    dim: usize,
    next: &[u8],
    out: &mut [f32],
) {
    let mut next = next.as_ptr();
    let (scores, out) = (scores.chunks(4 * KV_BLOCK_SIZE), out.chunks_mut(4 * dim));
    for ((scores, states), out) in scores.zip(states.chunks_mut(4)).zip(out) {
        match states.len() {
            4 => sum_tile::<4>(scores, v, &visible, scale, states, dim, next, out),
            3 => sum_tile::<3>(scores, v, &visible, scale, states, dim, next, out),
            2 => sum_tile::<2>(scores, v, &visible, scale, states, dim, next, out),
            _ => sum_tile::<1>(scores, v, &visible, scale, states, dim, next, out),
        }
        next = next.wrapping_add(dim / 2 * LINE);
    }
}

/// Softmax and weighted sums of V of `R` rows, all columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
fn sum_tile<const R: usize>(
    scores: &[f32],
    v: &[u8],
    visible: &Range<usize>,
    scale: f32,
    states: &mut [SoftmaxState],
    dim: usize,
    mut next: *const u8,
    out: &mut [f32],
) {
    let (mut words, mut rescale) = ([[0; KV_BLOCK_SIZE / 2]; R], [0.0; R]);
    for (r, scores) in scores.as_chunks().0.iter().enumerate() {
        rescale[r] = online_softmax(scores, visible, scale, &mut states[r], &mut words[r]);
    }
    let mut col = 0;
    while col < dim {
        // Three vectors at least, where possible: fewer sums wait for each other.
        let vectors = match (dim - col) / LANES {
            left @ 1..=4 => left,
            5 | 6 => 3,
            _ => 4,
        };
        next = match vectors {
            4 => columns::<R, 4>(&words, v, visible, &rescale, dim, col, next, out),
            3 => columns::<R, 3>(&words, v, visible, &rescale, dim, col, next, out),
            2 => columns::<R, 2>(&words, v, visible, &rescale, dim, col, next, out),
            _ => columns::<R, 1>(&words, v, visible, &rescale, dim, col, next, out),
        };
        col += vectors * LANES;
    }
}

/// The online softmax of a row: writes `exp(score · scale - max)` rounded to BF16, two per word,
/// and zero for positions that are not visible. Returns the factor for rescaling earlier sums.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
fn online_softmax(
    scores: &[f32; KV_BLOCK_SIZE],
    visible: &Range<usize>,
    scale: f32,
    state: &mut SoftmaxState,
    words: &mut [i32; KV_BLOCK_SIZE / 2],
) -> f32 {
    let visible = u64::MAX >> (KV_BLOCK_SIZE - visible.len()) << visible.start;
    let masks: [__mmask16; GROUPS] = std::array::from_fn(|group| (visible >> (group * LANES)) as _);
    let mut scaled = [_mm512_set1_ps(f32::NEG_INFINITY); GROUPS];
    for (group, scaled) in scaled.iter_mut().enumerate() {
        // SAFETY: a group has 16 scores.
        let score = unsafe { _mm512_loadu_ps(scores[group * LANES..].as_ptr()) };
        *scaled = _mm512_mask_mul_ps(*scaled, masks[group], score, _mm512_set1_ps(scale));
    }
    let [a, b, c, d] = scaled;
    let top = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(a, b), _mm512_max_ps(c, d)));
    let (before, max) = (state.max, state.max.max(top));
    let mut sum = _mm512_setzero_ps();
    for (group, scaled) in scaled.into_iter().enumerate() {
        let p = exp(_mm512_sub_ps(scaled, _mm512_set1_ps(max)));
        let p = _mm512_maskz_mov_ps(masks[group], p);
        sum = _mm512_add_ps(sum, p);
        store_bf16(p, &mut words.as_chunks_mut().0[group]);
    }
    let rescale = math::exp(before - max);
    *state = SoftmaxState { max, sum: state.sum * rescale + _mm512_reduce_add_ps(sum) };
    rescale
}

/// `eˣ` for `x <= 0` with a relative error of 3e-6, far below the rounding to BF16 that follows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
fn exp(x: __m512) -> __m512 {
    // Below -200 the result is zero, and infinity has no fraction.
    let x = _mm512_max_ps(_mm512_set1_ps(-200.0), x);
    let power = _mm512_mul_ps(x, _mm512_set1_ps(LOG2_E));
    let integer = _mm512_roundscale_ps::<0>(power);
    let fraction = _mm512_sub_ps(power, integer);
    let mut series = _mm512_set1_ps(SERIES[0]);
    for factor in &SERIES[1..] {
        series = _mm512_fmadd_ps(series, fraction, _mm512_set1_ps(*factor));
    }
    _mm512_scalef_ps(series, integer)
}

/// Adds the weighted values of all visible positions to `R` rows of `C` vectors of columns from
/// `col`. Returns what to prefetch next.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
// The compiler does not unroll iterators over rows, and sums would be in memory.
#[allow(clippy::needless_range_loop)]
fn columns<const R: usize, const C: usize>(
    words: &[[i32; KV_BLOCK_SIZE / 2]; R],
    v: &[u8],
    visible: &Range<usize>,
    rescale: &[f32; R],
    dim: usize,
    col: usize,
    mut next: *const u8,
    out: &mut [f32],
) -> *const u8 {
    let mut sums = [[_mm512_setzero_ps(); C]; R];
    for r in 0..R {
        for c in 0..C {
            let from = &out[r * dim + col + c * LANES..][..LANES];
            // SAFETY: the slice has 16 values.
            let before = unsafe { _mm512_loadu_ps(from.as_ptr()) };
            sums[r][c] = _mm512_mul_ps(before, _mm512_set1_ps(rescale[r]));
        }
    }
    let values = |pair: usize| &v[(pair * dim + col) * PAIR_BYTES..][..C * VECTOR];
    let word = |pair: usize| words.each_ref().map(|words| words[pair]);
    // The first pair may have only its second position visible, the last pair only its first.
    if !visible.start.is_multiple_of(2) {
        let pair = visible.start / 2;
        add_pair(&mut sums, word(pair), values(pair), !0xffff);
    }
    for pair in visible.start.div_ceil(2)..visible.end / 2 {
        next = prefetch(next);
        add_pair(&mut sums, word(pair), values(pair), !0);
    }
    if !visible.end.is_multiple_of(2) {
        let pair = visible.end / 2;
        add_pair(&mut sums, word(pair), values(pair), 0xffff);
    }
    for r in 0..R {
        for c in 0..C {
            let to = &mut out[r * dim + col + c * LANES..][..LANES];
            // SAFETY: the slice has 16 values.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), sums[r][c]) };
        }
    }
    next
}

/// Adds the products of a pair of positions. `mask` selects the halves of words: both positions, or
/// one of them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
// The compiler does not unroll iterators over rows, and sums would be in memory.
#[allow(clippy::needless_range_loop)]
fn add_pair<const R: usize, const C: usize>(
    sums: &mut [[__m512; C]; R],
    p: [i32; R],
    values: &[u8],
    mask: i32,
) {
    let mut v = [_mm512_setzero_si512(); C];
    for c in 0..C {
        v[c] = _mm512_and_si512(load_vector(values, c * VECTOR), _mm512_set1_epi32(mask));
    }
    for r in 0..R {
        let p = as_bf16_pairs(_mm512_set1_epi32(p[r] & mask));
        for c in 0..C {
            sums[r][c] = _mm512_dpbf16_ps(sums[r][c], as_bf16_pairs(v[c]), p);
        }
    }
}

/// Prefetches a cache line and returns the start of the following one.
#[inline]
#[target_feature(enable = "avx512f")]
fn prefetch(line: *const u8) -> *const u8 {
    _mm_prefetch::<_MM_HINT_T0>(line.cast());
    line.wrapping_add(LINE)
}

/// Rounds values to BF16, two per word.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
fn store_bf16(x: __m512, words: &mut [i32; LANES / 2]) {
    let rounded = _mm512_cvtneps_pbh(x);
    // SAFETY: both are 32 bytes of which every pattern is a value.
    let words_of_pairs: __m256i = unsafe { std::mem::transmute(rounded) };
    // SAFETY: the destination has 8 words.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), words_of_pairs) };
}
