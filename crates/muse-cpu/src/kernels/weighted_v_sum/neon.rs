//! The weighted sum of V in NEON: tiles of 4 rows by 16 columns; the sums take 16 of 32 registers.

use crate::kernels::simd::neon::Neon;

/// `super::select` returns it only for an [`crate::Isa`] that has these features.
pub(super) fn weighted_v_sum<const LAYOUT: u8>(
    p: &[f32],
    v: &[u8],
    n: usize,
    rescale: &[f32],
    out: &mut [f32],
) {
    // SAFETY: only `select` names this function, for a detected instruction set that has the
    // features.
    unsafe { compiled::<LAYOUT>(p, v, n, rescale, out) }
}

#[target_feature(enable = "neon")]
fn compiled<const LAYOUT: u8>(p: &[f32], v: &[u8], n: usize, rescale: &[f32], out: &mut [f32]) {
    super::tile::weighted_v_sum::<_, LAYOUT, 4>(Neon::enabled(), p, v, n, rescale, out);
}
