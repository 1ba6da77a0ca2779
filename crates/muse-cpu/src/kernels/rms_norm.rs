//! The root-mean-square norm of one row.

use super::per_isa::per_isa;

/// Partial sums of squares, so that the loop vectorizes.
pub(super) const LANES: usize = 32;

/// `x / sqrt(mean(x²) + eps) · weight`, in place; an empty weight means ones.
pub type RmsNorm = fn(x: &mut [f32], weight: &[f32], eps: f32);

per_isa!(RmsNorm = fn(x: &mut [f32], weight: &[f32], eps: f32), rms_norm);

#[inline(always)]
fn rms_norm(x: &mut [f32], weight: &[f32], eps: f32) {
    let (blocks, rest) = x.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for block in blocks {
        for (sum, x) in sums.iter_mut().zip(block) {
            *sum += x * x;
        }
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        *sum += x * x;
    }
    let mean = tree_sum(sums) / x.len() as f32;
    let factor = 1.0 / (mean + eps).sqrt();
    if weight.is_empty() {
        for x in x {
            *x *= factor;
        }
    } else {
        for (x, weight) in x.iter_mut().zip(weight) {
            *x = *x * factor * weight;
        }
    }
}

/// The sum: the upper half is added to the lower one until one value is left.
#[inline(always)]
pub(super) fn tree_sum(mut sums: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            sums[i] += sums[i + width];
        }
        width /= 2;
    }
    sums[0]
}
