//! The loops over rows, columns and positions, generic over the instruction set.

use crate::kernels::simd::Simd;
use crate::layout::row_bytes;

/// Vectors of columns of a tile.
const WIDE: usize = 4;

/// See [`super::WeightedVSum`]. All `ROWS` rows of a tile use a decoded V; every output value has
/// one accumulator.
#[inline(always)]
pub(super) fn weighted_v_sum<S: Simd, const LAYOUT: u8, const ROWS: usize>(
    simd: S,
    p: &[f32],
    v: &[u8],
    n: usize,
    rescale: &[f32],
    out: &mut [f32],
) {
    let rows = rescale.len();
    let width = out.len() / rows;
    let bytes = n * row_bytes::<LAYOUT>(width);
    assert_eq!((p.len(), v.len(), out.len()), (rows * n, bytes, rows * width), "whole rows");
    let mut row = 0;
    while row + ROWS <= rows {
        let (p, out) = (&p[row * n..], &mut out[row * width..]);
        columns::<S, LAYOUT, ROWS>(simd, p, v, n, &rescale[row..], width, out);
        row += ROWS;
    }
    while row < rows {
        let (p, out) = (&p[row * n..], &mut out[row * width..]);
        columns::<S, LAYOUT, 1>(simd, p, v, n, &rescale[row..], width, out);
        row += 1;
    }
}

/// The first `R` rows with all columns.
#[inline(always)]
fn columns<S: Simd, const LAYOUT: u8, const R: usize>(
    simd: S,
    p: &[f32],
    v: &[u8],
    n: usize,
    rescale: &[f32],
    width: usize,
    out: &mut [f32],
) {
    assert!(p.len() >= R * n && rescale.len() >= R && out.len() >= R * width, "rows of a tile");
    let mut at = 0;
    while at + WIDE * S::LANES <= width {
        tile::<S, LAYOUT, R, WIDE>(simd, p, v, n, rescale, width, at, out);
        at += WIDE * S::LANES;
    }
    while at + S::LANES <= width {
        tile::<S, LAYOUT, R, 1>(simd, p, v, n, rescale, width, at, out);
        at += S::LANES;
    }
    if at < width {
        last_columns::<S, LAYOUT, R>(simd, p, v, n, rescale, width, at, out);
    }
}

/// A tile of `R` rows and `C` vectors of columns from column `at`.
#[inline(always)]
fn tile<S: Simd, const LAYOUT: u8, const R: usize, const C: usize>(
    simd: S,
    p: &[f32],
    v: &[u8],
    n: usize,
    rescale: &[f32],
    width: usize,
    at: usize,
    out: &mut [f32],
) {
    let mut sums = [[simd.zero(); C]; R];
    for (r, (sums, rescale)) in sums.iter_mut().zip(rescale).enumerate() {
        for (c, sum) in sums.iter_mut().enumerate() {
            let from = out[r * width + at + c * S::LANES..].as_ptr();
            // SAFETY: `columns` checked that the row has `C` whole vectors from `at`.
            *sum = simd.mul(unsafe { simd.load(from) }, simd.splat(*rescale));
        }
    }
    for (t, v) in v.chunks_exact(row_bytes::<LAYOUT>(width)).enumerate() {
        for c in 0..C {
            // SAFETY: `v` is a whole row of `width` values, `C` vectors from `at` end within it,
            // and `at` is a multiple of `LANES`.
            let v = unsafe { simd.decode::<LAYOUT>(v.as_ptr(), at + c * S::LANES) };
            for (r, sums) in sums.iter_mut().enumerate() {
                sums[c] = simd.fma(simd.splat(p[r * n + t]), v, sums[c]);
            }
        }
    }
    for (r, sums) in sums.into_iter().enumerate() {
        for (c, sum) in sums.into_iter().enumerate() {
            let to = out[r * width + at + c * S::LANES..].as_mut_ptr();
            // SAFETY: the same values were loaded above.
            unsafe { simd.store(to, sum) };
        }
    }
}

/// `R` rows with the last columns from `at`, which are less than a vector.
#[inline(always)]
fn last_columns<S: Simd, const LAYOUT: u8, const R: usize>(
    simd: S,
    p: &[f32],
    v: &[u8],
    n: usize,
    rescale: &[f32],
    width: usize,
    at: usize,
    out: &mut [f32],
) {
    let rest = width - at;
    for r in 0..R {
        let out = &mut out[r * width + at..][..rest];
        // SAFETY: `out` has `rest` values.
        let before = unsafe { simd.load_partial(out.as_ptr(), rest) };
        let mut sum = simd.mul(before, simd.splat(rescale[r]));
        for (t, v) in v.chunks_exact(row_bytes::<LAYOUT>(width)).enumerate() {
            // SAFETY: `v` is a whole row of `width = at + rest` values, and `rest` is less than a
            // vector.
            let v = unsafe { simd.decode_partial::<LAYOUT>(v.as_ptr(), at, rest) };
            sum = simd.fma(simd.splat(p[r * n + t]), v, sum);
        }
        // SAFETY: `out` has `rest` values.
        unsafe { simd.store_partial(out.as_mut_ptr(), sum, rest) };
    }
}
