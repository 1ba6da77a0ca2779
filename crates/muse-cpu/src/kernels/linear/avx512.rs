//! Tiles of 4 x 4 over 16 lanes: 16 of 32 registers hold sums.

use crate::kernels::simd::avx512::Avx512;

/// Runs only where [`super::select`] was given proof of the instruction set.
pub(super) fn linear<const LAYOUT: u8>(x: &[f32], w: &[u8], k: usize, out: &mut [f32]) {
    // SAFETY: `select` hands this function out for a detected instruction set only.
    unsafe { compiled::<LAYOUT>(x, w, k, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn compiled<const LAYOUT: u8>(x: &[f32], w: &[u8], k: usize, out: &mut [f32]) {
    super::tile::linear::<_, LAYOUT, 4, 8>(Avx512::here(), x, w, k, out);
}
