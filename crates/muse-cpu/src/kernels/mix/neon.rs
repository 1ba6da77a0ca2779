//! 4 rows over 16 columns: 16 of 32 registers hold sums.

use crate::kernels::simd::neon::Neon;

/// Runs only where [`super::select`] was given proof of the instruction set.
pub(super) fn mix<const LAYOUT: u8>(p: &[f32], v: &[u8], n: usize, keep: &[f32], out: &mut [f32]) {
    // SAFETY: `select` hands this function out for a detected instruction set only.
    unsafe { compiled::<LAYOUT>(p, v, n, keep, out) }
}

#[target_feature(enable = "neon")]
fn compiled<const LAYOUT: u8>(p: &[f32], v: &[u8], n: usize, keep: &[f32], out: &mut [f32]) {
    super::tile::mix::<_, LAYOUT, 4>(Neon::here(), p, v, n, keep, out);
}
