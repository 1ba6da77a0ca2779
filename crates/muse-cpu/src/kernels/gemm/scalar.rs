//! The definition of the gemm: one dot product after the other.

use crate::layout::{self, row_bytes};

/// See [`super::Gemm`]; `LAYOUT` is a [`crate::Layout`].
pub(super) fn gemm<const LAYOUT: u8>(x: &[f32], w: &[u8], k: usize, out: &mut [f32]) {
    let width = row_bytes::<LAYOUT>(k);
    let cols = w.len() / width;
    for (x, out) in x.chunks_exact(k).zip(out.chunks_exact_mut(cols)) {
        for (w, y) in w.chunks_exact(width).zip(out) {
            *y = (0..k).map(|i| x[i] * layout::value::<LAYOUT>(w, i)).sum();
        }
    }
}
