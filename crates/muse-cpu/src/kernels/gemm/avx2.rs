//! The gemm in AVX2: tiles of 2 x 4 sums over 8 lanes; the sums take 8 of 16 registers.

use crate::kernels::simd::avx2::Avx2;

/// `super::select` returns it only for an [`crate::Isa`] that has these features.
pub(super) fn gemm<const LAYOUT: u8>(x: &[f32], w: &[u8], k: usize, out: &mut [f32]) {
    // SAFETY: only `select` names this function, for a detected instruction set that has the
    // features.
    unsafe { compiled::<LAYOUT>(x, w, k, out) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn compiled<const LAYOUT: u8>(x: &[f32], w: &[u8], k: usize, out: &mut [f32]) {
    super::tile::gemm::<_, LAYOUT, 2, 8>(Avx2::enabled(), x, w, k, out);
}
