//! The definition of the weighted sum of V: one value after the other.

use crate::layout::{self, row_bytes};

/// See [`super::WeightedVSum`]; `LAYOUT` is a [`crate::Layout`].
pub(super) fn weighted_v_sum<const LAYOUT: u8>(
    p: &[f32],
    v: &[u8],
    n: usize,
    rescale: &[f32],
    out: &mut [f32],
) {
    let width = out.len() / rescale.len();
    for ((p, &rescale), out) in p.chunks_exact(n).zip(rescale).zip(out.chunks_exact_mut(width)) {
        for (i, y) in out.iter_mut().enumerate() {
            *y *= rescale;
            for (p, v) in p.iter().zip(v.chunks_exact(row_bytes::<LAYOUT>(width))) {
                *y += p * layout::value::<LAYOUT>(v, i);
            }
        }
    }
}
