//! Dot products of a few activation rows with weight rows, decoded as they are read.

pub mod scalar;

use crate::layout::Layout;

/// `out[r, c] = x[r] · w[c]` with `x` `[rows, k]`, `w` rows of `k` stored values, `out`
/// `[rows, cols]`. The sum over `k` has one fixed order, whatever the number of rows and columns.
pub type Linear = fn(x: &[f32], w: &[u8], k: usize, out: &mut [f32]);

/// The kernel for weights of a layout.
pub fn select(layout: Layout) -> Linear {
    match layout {
        Layout::F32 => scalar::linear::<{ Layout::F32 as u8 }>,
        Layout::F16 => scalar::linear::<{ Layout::F16 as u8 }>,
        Layout::Bf16 => scalar::linear::<{ Layout::Bf16 as u8 }>,
        Layout::Q8_0 => scalar::linear::<{ Layout::Q8_0 as u8 }>,
    }
}
