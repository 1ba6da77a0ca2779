//! The root-mean-square norm of one row.

use super::plain::per_isa;

/// Partial sums, so that the squares are added in vectors.
const LANES: usize = 32;

/// `x / sqrt(mean(x²) + eps) · weight`, in place; an empty weight means ones.
pub type Norm = fn(x: &mut [f32], weight: &[f32], eps: f32);

per_isa!(Norm = fn(x: &mut [f32], weight: &[f32], eps: f32), norm);

#[inline(always)]
fn norm(x: &mut [f32], weight: &[f32], eps: f32) {
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
    let mean = halve(sums) / x.len() as f32;
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

/// The sum, halves onto each other.
#[inline(always)]
pub(super) fn halve(mut sums: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            sums[i] += sums[i + width];
        }
        width /= 2;
    }
    sums[0]
}
