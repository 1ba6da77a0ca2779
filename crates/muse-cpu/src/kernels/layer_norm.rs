//! The layer norm of one row.

use super::per_isa::per_isa;
use super::rms_norm::{LANES, tree_sum};

/// `(x - mean(x)) / sqrt(var(x) + eps) · weight + bias`, in place.
pub type LayerNorm = fn(x: &mut [f32], weight: &[f32], bias: &[f32], eps: f32);

per_isa!(LayerNorm = fn(x: &mut [f32], weight: &[f32], bias: &[f32], eps: f32), layer_norm);

#[inline(always)]
fn layer_norm(x: &mut [f32], weight: &[f32], bias: &[f32], eps: f32) {
    let mean = sum(x, |x| x) / x.len() as f32;
    let variance = sum(x, |x| (x - mean) * (x - mean)) / x.len() as f32;
    let factor = 1.0 / (variance + eps).sqrt();
    for ((x, weight), bias) in x.iter_mut().zip(weight).zip(bias) {
        *x = (*x - mean) * factor * weight + bias;
    }
}

/// The sum of `term(x)` over a row.
#[inline(always)]
fn sum(x: &[f32], term: impl Fn(f32) -> f32) -> f32 {
    let (blocks, rest) = x.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for block in blocks {
        for (sum, x) in sums.iter_mut().zip(block) {
            *sum += term(*x);
        }
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        *sum += term(*x);
    }
    tree_sum(sums)
}
