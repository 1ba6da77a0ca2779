//! 4 rows over 64 columns: 16 of 32 registers hold sums.

use crate::kernels::simd::avx512::Avx512;

/// Runs only where [`super::select`] was given proof of the instruction set.
pub(super) fn mix<const LAYOUT: u8>(p: &[f32], v: &[u8], n: usize, keep: &[f32], out: &mut [f32]) {
    // SAFETY: `select` hands this function out for a detected instruction set only.
    unsafe { compiled::<LAYOUT>(p, v, n, keep, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn compiled<const LAYOUT: u8>(p: &[f32], v: &[u8], n: usize, keep: &[f32], out: &mut [f32]) {
    super::tile::mix::<_, LAYOUT, 4>(Avx512::here(), p, v, n, keep, out);
}
