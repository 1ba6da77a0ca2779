//! Weighted sums of stored V rows: the second half of attention.

pub mod scalar;

use crate::layout::Layout;

/// `out[r] = out[r] · keep[r] + Σ_t p[r, t] · v[t]` with `p` `[rows, n]`, `v` `n` stored rows of
/// `out`'s width, `keep` `[rows]`. The sum over `t` runs in order.
pub type Mix = fn(p: &[f32], v: &[u8], n: usize, keep: &[f32], out: &mut [f32]);

/// The kernel for V rows of a layout.
pub fn select(layout: Layout) -> Mix {
    match layout {
        Layout::F32 => scalar::mix::<{ Layout::F32 as u8 }>,
        Layout::F16 => scalar::mix::<{ Layout::F16 as u8 }>,
        Layout::Bf16 => scalar::mix::<{ Layout::Bf16 as u8 }>,
        Layout::Q8_0 => scalar::mix::<{ Layout::Q8_0 as u8 }>,
    }
}
