//! The definition: one value after the other.

use crate::layout::{self, row_bytes};

/// See [`super::Mix`]; `LAYOUT` is a [`crate::Layout`].
pub(super) fn mix<const LAYOUT: u8>(p: &[f32], v: &[u8], n: usize, keep: &[f32], out: &mut [f32]) {
    let width = out.len() / keep.len();
    for ((p, &keep), out) in p.chunks_exact(n).zip(keep).zip(out.chunks_exact_mut(width)) {
        for (i, y) in out.iter_mut().enumerate() {
            *y *= keep;
            for (p, v) in p.iter().zip(v.chunks_exact(row_bytes::<LAYOUT>(width))) {
                *y += p * layout::value::<LAYOUT>(v, i);
            }
        }
    }
}
