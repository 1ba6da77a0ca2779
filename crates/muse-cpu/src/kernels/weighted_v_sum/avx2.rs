//! The weighted sum of V in AVX2: tiles of 2 rows by 32 columns; the sums take 8 of 16 registers.

use crate::kernels::simd::avx2::Avx2;

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

#[target_feature(enable = "avx2,fma,f16c")]
fn compiled<const LAYOUT: u8>(p: &[f32], v: &[u8], n: usize, rescale: &[f32], out: &mut [f32]) {
    super::tile::weighted_v_sum::<_, LAYOUT, 2>(Avx2::enabled(), p, v, n, rescale, out);
}
