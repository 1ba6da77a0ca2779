//! `vdpbf16ps`: 4 rows by 4 vectors, 16 of 32 registers hold sums.

use std::arch::x86_64::*;
use std::f32::consts::{LN_2, LOG2_E};
use std::ops::Range;

use muse_core::contract::KV_BLOCK_SIZE;

use super::{LANES, PAIR};
use crate::kernels::simd::avx512::{pairs, vector};
use crate::kernels::softmax::Running;

/// Columns of queries that are rounded at a time.
const COLS: usize = 128;
/// Vectors of keys of a page.
const GROUPS: usize = KV_BLOCK_SIZE / LANES;
/// `2ˣ` between halves: powers of `ln 2` by factorials, the highest first.
const SERIES: [f32; 6] = [1.333_355_8e-3, 9.618_129e-3, 5.550_411e-2, 0.240_226_5, LN_2, 1.0];
/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes of a vector.
const VECTOR: usize = LANES * PAIR;

/// Runs only where [`super::select`] was given proof of the instruction set.
pub(super) fn scores(q: &[f32], k: &[u8], dim: usize, next: &[u8], scores: &mut [f32]) {
    let rows = q.len() / dim;
    assert!(dim.is_multiple_of(LANES) && q.len() == rows * dim, "rows of {dim} columns");
    assert_eq!((k.len(), scores.len()), (KV_BLOCK_SIZE * dim * 2, rows * KV_BLOCK_SIZE), "a page");
    // SAFETY: `select` hands this function out for a detected instruction set only.
    unsafe { all_scores(q, k, dim, next, scores) }
}

/// Runs only where [`super::select`] was given proof of the instruction set.
pub(super) fn values(
    scores: &[f32],
    v: &[u8],
    seen: Range<usize>,
    scale: f32,
    running: &mut [Running],
    next: &[u8],
    out: &mut [f32],
) {
    let (rows, dim) = (running.len(), out.len() / running.len());
    assert!(dim.is_multiple_of(LANES), "{dim} columns in vectors");
    assert!(!seen.is_empty() && seen.end <= KV_BLOCK_SIZE, "positions {seen:?} of a page");
    assert_eq!((scores.len(), out.len()), (rows * KV_BLOCK_SIZE, rows * dim), "whole rows");
    assert_eq!(v.len(), KV_BLOCK_SIZE * dim * 2, "a page");
    // SAFETY: `select` hands this function out for a detected instruction set only.
    unsafe { all_values(scores, v, seen, scale, running, dim, next, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
fn all_scores(q: &[f32], k: &[u8], dim: usize, next: &[u8], scores: &mut [f32]) {
    let mut next = next.as_ptr();
    let (q_tiles, scores_tiles) = (q.chunks(4 * dim), scores.chunks_mut(4 * KV_BLOCK_SIZE));
    for (q, scores) in q_tiles.zip(scores_tiles) {
        match q.len() / dim {
            4 => score::<4>(q, k, dim, next, scores),
            3 => score::<3>(q, k, dim, next, scores),
            2 => score::<2>(q, k, dim, next, scores),
            _ => score::<1>(q, k, dim, next, scores),
        }
        next = next.wrapping_add(dim / 2 * LINE);
    }
}

/// `R` queries with all keys of a page.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
// Iterators over rows are not unrolled, and sums would lie in memory.
#[allow(clippy::needless_range_loop)]
fn score<const R: usize>(q: &[f32], k: &[u8], dim: usize, mut next: *const u8, scores: &mut [f32]) {
    let mut words = [[0_i32; COLS / 2]; R];
    let mut sums = [[_mm512_setzero_ps(); GROUPS]; R];
    for (first, keys) in (0..dim).step_by(COLS).zip(k.chunks(COLS / 2 * GROUPS * VECTOR)) {
        for (words, q) in words.iter_mut().zip(q.chunks_exact(dim)) {
            let vectors = q[first..dim.min(first + COLS)].as_chunks::<LANES>().0;
            for (words, q) in words.as_chunks_mut().0.iter_mut().zip(vectors) {
                // SAFETY: there are 16 values.
                store_halves(unsafe { _mm512_loadu_ps(q.as_ptr()) }, words);
            }
        }
        for (i, keys) in keys.chunks_exact(GROUPS * VECTOR).enumerate() {
            next = fetch(next);
            let keys: [_; GROUPS] = [0, 1, 2, 3].map(|group| vector(keys, group * VECTOR));
            for r in 0..R {
                let q = pairs(_mm512_set1_epi32(words[r][i]));
                for group in 0..GROUPS {
                    sums[r][group] = _mm512_dpbf16_ps(sums[r][group], pairs(keys[group]), q);
                }
            }
        }
    }
    for (scores, sums) in scores.chunks_exact_mut(KV_BLOCK_SIZE).zip(sums) {
        for (scores, sum) in scores.chunks_exact_mut(LANES).zip(sums) {
            // SAFETY: there is room for 16 values.
            unsafe { _mm512_storeu_ps(scores.as_mut_ptr(), sum) };
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
fn all_values(
    scores: &[f32],
    v: &[u8],
    seen: Range<usize>,
    scale: f32,
    running: &mut [Running],
    dim: usize,
    next: &[u8],
    out: &mut [f32],
) {
    let mut next = next.as_ptr();
    let (scores, out) = (scores.chunks(4 * KV_BLOCK_SIZE), out.chunks_mut(4 * dim));
    for ((scores, running), out) in scores.zip(running.chunks_mut(4)).zip(out) {
        match running.len() {
            4 => value::<4>(scores, v, &seen, scale, running, dim, next, out),
            3 => value::<3>(scores, v, &seen, scale, running, dim, next, out),
            2 => value::<2>(scores, v, &seen, scale, running, dim, next, out),
            _ => value::<1>(scores, v, &seen, scale, running, dim, next, out),
        }
        next = next.wrapping_add(dim / 2 * LINE);
    }
}

/// `R` rows over all columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
fn value<const R: usize>(
    scores: &[f32],
    v: &[u8],
    seen: &Range<usize>,
    scale: f32,
    running: &mut [Running],
    dim: usize,
    mut next: *const u8,
    out: &mut [f32],
) {
    let (mut words, mut keep) = ([[0; KV_BLOCK_SIZE / 2]; R], [0.0; R]);
    for (r, scores) in scores.as_chunks().0.iter().enumerate() {
        keep[r] = soften(scores, seen, scale, &mut running[r], &mut words[r]);
    }
    let mut col = 0;
    while col + 4 * LANES <= dim {
        next = columns::<R, 4>(&words, v, seen, &keep, dim, col, next, out);
        col += 4 * LANES;
    }
    while col < dim {
        next = columns::<R, 1>(&words, v, seen, &keep, dim, col, next, out);
        col += LANES;
    }
}

/// Turns scores into words of rounded `exp(score · scale - largest)`, zero where not `seen`.
/// Returns the factor for what was summed before.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
fn soften(
    scores: &[f32; KV_BLOCK_SIZE],
    seen: &Range<usize>,
    scale: f32,
    running: &mut Running,
    words: &mut [i32; KV_BLOCK_SIZE / 2],
) -> f32 {
    let seen = u64::MAX >> (KV_BLOCK_SIZE - seen.len()) << seen.start;
    let masks: [__mmask16; GROUPS] = std::array::from_fn(|group| (seen >> (group * LANES)) as _);
    let mut scaled = [_mm512_set1_ps(f32::NEG_INFINITY); GROUPS];
    for (group, scaled) in scaled.iter_mut().enumerate() {
        // SAFETY: a group has 16 scores.
        let score = unsafe { _mm512_loadu_ps(scores[group * LANES..].as_ptr()) };
        *scaled = _mm512_mask_mul_ps(*scaled, masks[group], score, _mm512_set1_ps(scale));
    }
    let [a, b, c, d] = scaled;
    let top = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(a, b), _mm512_max_ps(c, d)));
    let (before, largest) = (running.largest, running.largest.max(top));
    let mut sum = _mm512_setzero_ps();
    for (group, scaled) in scaled.into_iter().enumerate() {
        let p = exp(_mm512_sub_ps(scaled, _mm512_set1_ps(largest)));
        let p = _mm512_maskz_mov_ps(masks[group], p);
        sum = _mm512_add_ps(sum, p);
        store_halves(p, &mut words.as_chunks_mut().0[group]);
    }
    let keep = super::super::math::exp(before - largest);
    *running = Running { largest, total: running.total * keep + _mm512_reduce_add_ps(sum) };
    keep
}

/// `eˣ` for `x <= 0` within 3e-6 of itself: far finer than what it is rounded to.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
fn exp(x: __m512) -> __m512 {
    // Beyond that it is zero, and infinity would leave no fraction.
    let x = _mm512_max_ps(_mm512_set1_ps(-200.0), x);
    let power = _mm512_mul_ps(x, _mm512_set1_ps(LOG2_E));
    let whole = _mm512_roundscale_ps::<0>(power);
    let fraction = _mm512_sub_ps(power, whole);
    let mut series = _mm512_set1_ps(SERIES[0]);
    for factor in &SERIES[1..] {
        series = _mm512_fmadd_ps(series, fraction, _mm512_set1_ps(*factor));
    }
    _mm512_scalef_ps(series, whole)
}

/// `R` rows, `C` vectors from column `col` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
// Iterators over rows are not unrolled, and sums would lie in memory.
#[allow(clippy::needless_range_loop)]
fn columns<const R: usize, const C: usize>(
    words: &[[i32; KV_BLOCK_SIZE / 2]; R],
    v: &[u8],
    seen: &Range<usize>,
    keep: &[f32; R],
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
            sums[r][c] = _mm512_mul_ps(before, _mm512_set1_ps(keep[r]));
        }
    }
    let values = |pair: usize| &v[(pair * dim + col) * PAIR..][..C * VECTOR];
    let word = |pair: usize| words.each_ref().map(|words| words[pair]);
    // A pair of which one position is not seen.
    if !seen.start.is_multiple_of(2) {
        let pair = seen.start / 2;
        add(&mut sums, word(pair), values(pair), !0xffff);
    }
    for pair in seen.start.div_ceil(2)..seen.end / 2 {
        next = fetch(next);
        add(&mut sums, word(pair), values(pair), !0);
    }
    if !seen.end.is_multiple_of(2) {
        let pair = seen.end / 2;
        add(&mut sums, word(pair), values(pair), 0xffff);
    }
    for r in 0..R {
        for c in 0..C {
            let to = &mut out[r * dim + col + c * LANES..][..LANES];
            // SAFETY: the slice has room for 16 values.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), sums[r][c]) };
        }
    }
    next
}

/// Adds the products of a pair of positions, `halves` of it.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
// Iterators over rows are not unrolled, and sums would lie in memory.
#[allow(clippy::needless_range_loop)]
fn add<const R: usize, const C: usize>(
    sums: &mut [[__m512; C]; R],
    p: [i32; R],
    values: &[u8],
    halves: i32,
) {
    let mut v = [_mm512_setzero_si512(); C];
    for c in 0..C {
        v[c] = _mm512_and_si512(vector(values, c * VECTOR), _mm512_set1_epi32(halves));
    }
    for r in 0..R {
        let p = pairs(_mm512_set1_epi32(p[r] & halves));
        for c in 0..C {
            sums[r][c] = _mm512_dpbf16_ps(sums[r][c], pairs(v[c]), p);
        }
    }
}

/// Asks for a line that will be needed soon. Returns where the one behind it starts.
#[inline]
#[target_feature(enable = "avx512f")]
fn fetch(line: *const u8) -> *const u8 {
    _mm_prefetch::<_MM_HINT_T0>(line.cast());
    line.wrapping_add(LINE)
}

/// Rounds values, two a word.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
fn store_halves(x: __m512, words: &mut [i32; LANES / 2]) {
    let halves = _mm512_cvtneps_pbh(x);
    // SAFETY: both are 32 bytes of which every pattern is a value.
    let halves: __m256i = unsafe { std::mem::transmute(halves) };
    // SAFETY: there is room for 8 words.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), halves) };
}
