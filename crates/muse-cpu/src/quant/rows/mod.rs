//! Products of a few activation rows with one panel: the loops over K.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

#[cfg(target_arch = "x86_64")]
use super::expanded;
use super::{Kernels, PANEL, Packing};
use crate::kernels::{Isa, Level};

/// What packings have besides on other machines: nothing.
#[cfg(not(target_arch = "x86_64"))]
pub(super) trait Vectors {}
#[cfg(not(target_arch = "x86_64"))]
impl<P: Packing> Vectors for P {}

/// Rows of the largest tile: they share what is unpacked.
pub(crate) const MOST_ROWS: usize = 8;

/// `out[r] += x[r] · w` for the 16 rows `w` of a panel, `k` values each; `x` is a tile of rows of the
/// [`super::Activations`] that the weights meet. `next` are weights that come later: they are asked
/// for meanwhile.
pub(crate) type Rows = fn(panel: &[u8], k: usize, x: &[i32], next: &[u8], out: &mut [[f32; PANEL]]);

/// The kernels of a packing.
pub(super) fn kernels<P: Packing>(isa: Isa) -> Option<Kernels> {
    let kernels = match isa.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx512 => Kernels { packed: avx2::rows::<P>, expand: None },
        #[cfg(target_arch = "x86_64")]
        Level::Vnni | Level::Bf16 => Kernels {
            packed: avx512::rows::<avx512::Packed<P>>,
            expand: if P::EXPANDS {
                Some((expanded::expand::<P>, avx512::rows::<expanded::Expanded<P>>))
            } else {
                None
            },
        },
        Level::Scalar => Kernels { packed: scalar::rows::<P>, expand: None },
        #[cfg(target_arch = "aarch64")]
        Level::Dotprod => Kernels { packed: neon::rows::<P>, expand: None },
        // Without products of bytes only the plain kernels have vectors.
        #[cfg(target_arch = "aarch64")]
        Level::Neon => return None,
    };
    Some(kernels)
}
