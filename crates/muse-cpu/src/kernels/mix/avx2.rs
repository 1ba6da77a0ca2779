//! 2 rows over 32 columns: 8 of 16 registers hold sums.

use crate::kernels::simd::avx2::Avx2;

/// Runs only where [`super::select`] was given proof of the instruction set.
pub(super) fn mix<const LAYOUT: u8>(p: &[f32], v: &[u8], n: usize, keep: &[f32], out: &mut [f32]) {
    // SAFETY: `select` hands this function out for a detected instruction set only.
    unsafe { compiled::<LAYOUT>(p, v, n, keep, out) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn compiled<const LAYOUT: u8>(p: &[f32], v: &[u8], n: usize, keep: &[f32], out: &mut [f32]) {
    super::tile::mix::<_, LAYOUT, 2>(Avx2::here(), p, v, n, keep, out);
}
