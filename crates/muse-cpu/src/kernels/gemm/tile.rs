//! The loops over rows, columns and K, generic over the instruction set.

use crate::kernels::simd::Simd;
use crate::layout::row_bytes;

/// Values of K per iteration of the main loop: a quant block of Q8_0, so that its scale is decoded
/// once.
const STEP: usize = 32;

/// See [`super::Gemm`]. Tiles have `ROWS` rows and 4 columns, so that all rows of a tile use a
/// decoded weight; a tile of a single row has `WIDE` columns. Every pair of row and column has one
/// accumulator, whatever the tile.
#[inline(always)]
pub(super) fn gemm<S: Simd, const LAYOUT: u8, const ROWS: usize, const WIDE: usize>(
    simd: S,
    x: &[f32],
    w: &[u8],
    k: usize,
    out: &mut [f32],
) {
    let width = row_bytes::<LAYOUT>(k);
    let (rows, cols) = (x.len() / k, w.len() / width);
    assert_eq!((x.len(), w.len(), out.len()), (rows * k, cols * width, rows * cols), "whole rows");
    let mut row = 0;
    while row + ROWS <= rows {
        columns::<S, LAYOUT, ROWS, 4>(simd, &x[row * k..], w, k, &mut out[row * cols..]);
        row += ROWS;
    }
    if ROWS > 2 && row + 2 <= rows {
        columns::<S, LAYOUT, 2, 4>(simd, &x[row * k..], w, k, &mut out[row * cols..]);
        row += 2;
    }
    if row < rows {
        columns::<S, LAYOUT, 1, WIDE>(simd, &x[row * k..], w, k, &mut out[row * cols..]);
    }
}

/// The first `R` rows of `x` with all columns, `C` at a time and the last ones one by one.
#[inline(always)]
fn columns<S: Simd, const LAYOUT: u8, const R: usize, const C: usize>(
    simd: S,
    x: &[f32],
    w: &[u8],
    k: usize,
    out: &mut [f32],
) {
    let width = row_bytes::<LAYOUT>(k);
    let cols = w.len() / width;
    let mut col = 0;
    while col + C <= cols {
        tile::<S, LAYOUT, R, C>(simd, x, &w[col * width..], k, cols, &mut out[col..]);
        col += C;
    }
    while col < cols {
        tile::<S, LAYOUT, R, 1>(simd, x, &w[col * width..], k, cols, &mut out[col..]);
        col += 1;
    }
}

/// A tile of `R` rows and `C` columns; rows of `out` are `stride` values apart.
#[inline(always)]
fn tile<S: Simd, const LAYOUT: u8, const R: usize, const C: usize>(
    simd: S,
    x: &[f32],
    w: &[u8],
    k: usize,
    stride: usize,
    out: &mut [f32],
) {
    let width = row_bytes::<LAYOUT>(k);
    assert!(x.len() >= R * k && w.len() >= C * width, "rows and columns of a tile");
    let x: [*const f32; R] = std::array::from_fn(|r| x.as_ptr().wrapping_add(r * k));
    let w: [*const u8; C] = std::array::from_fn(|c| w.as_ptr().wrapping_add(c * width));
    let mut sums = [[simd.zero(); C]; R];
    let mut at = 0;
    while at + STEP <= k {
        for part in (0..STEP).step_by(S::LANES) {
            step::<S, LAYOUT, R, C>(simd, &x, &w, at + part, &mut sums);
        }
        at += STEP;
    }
    while at + S::LANES <= k {
        step::<S, LAYOUT, R, C>(simd, &x, &w, at, &mut sums);
        at += S::LANES;
    }
    if at < k {
        for (c, w) in w.into_iter().enumerate() {
            // SAFETY: the assertion above checked that every row has `k` values. `k - at` of them
            // are left, less than a vector, which rows of quant blocks of 32 never have.
            let w = unsafe { simd.decode_partial::<LAYOUT>(w, at, k - at) };
            for (x, sums) in x.iter().zip(&mut sums) {
                // SAFETY: as above.
                let x = unsafe { simd.load_partial(x.wrapping_add(at), k - at) };
                sums[c] = simd.fma(x, w, sums[c]);
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        for c in (0..C).step_by(4) {
            let four = std::array::from_fn(|i| if c + i < C { sums[c + i] } else { simd.zero() });
            for (out, sum) in out[r * stride + c..].iter_mut().zip(simd.sum_lanes(four)).take(C - c)
            {
                *out = sum;
            }
        }
    }
}

/// Adds the products of one vector of K to all sums of the tile.
#[inline(always)]
fn step<S: Simd, const LAYOUT: u8, const R: usize, const C: usize>(
    simd: S,
    x: &[*const f32; R],
    w: &[*const u8; C],
    at: usize,
    sums: &mut [[S::Vector; C]; R],
) {
    let mut values = [simd.zero(); R];
    for (value, x) in values.iter_mut().zip(x) {
        // SAFETY: `tile` checked that every row has `k` values, and `at + LANES <= k`.
        *value = unsafe { simd.load(x.wrapping_add(at)) };
    }
    for (c, w) in w.iter().enumerate() {
        // SAFETY: as above, and `at` is a multiple of `LANES`.
        let w = unsafe { simd.decode::<LAYOUT>(*w, at) };
        for (x, sums) in values.iter().zip(sums.iter_mut()) {
            sums[c] = simd.fma(*x, w, sums[c]);
        }
    }
}
