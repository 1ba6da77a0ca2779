//! Products of a tile of activation rows with one panel of packed weights: the loops over K.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(super) mod neon;
pub(super) mod scalar;

use super::panel::PANEL_ROWS;

/// `out[r] += x[r] · w` for the 16 weight rows `w` of a panel, of `k` values each. `x` is a tile of
/// activations in the format that the weights need, 1, 2, 4 or 8 rows. `next` is prefetched
/// meanwhile: the memory that is read next.
pub(crate) type PanelGemm =
    fn(panel: &[u8], k: usize, x: &[i32], next: &[u8], out: &mut [[f32; PANEL_ROWS]]);
