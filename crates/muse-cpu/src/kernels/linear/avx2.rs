//! Tiles of 2 x 4 over 8 lanes: 8 of 16 registers hold sums.

use crate::kernels::simd::avx2::Avx2;

/// Runs only where [`super::select`] was given proof of the instruction set.
pub(super) fn linear<const LAYOUT: u8>(x: &[f32], w: &[u8], k: usize, out: &mut [f32]) {
    // SAFETY: `select` hands this function out for a detected instruction set only.
    unsafe { compiled::<LAYOUT>(x, w, k, out) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn compiled<const LAYOUT: u8>(x: &[f32], w: &[u8], k: usize, out: &mut [f32]) {
    super::tile::linear::<_, LAYOUT, 2, 8>(Avx2::here(), x, w, k, out);
}
