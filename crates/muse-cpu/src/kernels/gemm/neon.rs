//! The gemm in NEON: tiles of 4 x 4 sums over 4 lanes; the sums take 16 of 32 registers.

use crate::kernels::simd::neon::Neon;

/// `super::select` returns it only for an [`crate::Isa`] that has these features.
pub(super) fn gemm<const LAYOUT: u8>(x: &[f32], w: &[u8], k: usize, out: &mut [f32]) {
    // SAFETY: only `select` names this function, for a detected instruction set that has the
    // features.
    unsafe { compiled::<LAYOUT>(x, w, k, out) }
}

#[target_feature(enable = "neon")]
fn compiled<const LAYOUT: u8>(x: &[f32], w: &[u8], k: usize, out: &mut [f32]) {
    super::tile::gemm::<_, LAYOUT, 4, 8>(Neon::enabled(), x, w, k, out);
}
