//! The exact GELU of one row.

use super::math::normal_cdf;
use super::per_isa::per_isa;

/// `x = gelu(x + bias)` with `gelu(x) = x · Φ(x)`; an empty bias means zeros.
pub type Gelu = fn(x: &mut [f32], bias: &[f32]);

per_isa!(Gelu = fn(x: &mut [f32], bias: &[f32]), gelu);

#[inline(always)]
fn gelu(x: &mut [f32], bias: &[f32]) {
    if bias.is_empty() {
        for x in x {
            *x *= normal_cdf(*x);
        }
    } else {
        for (x, bias) in x.iter_mut().zip(bias) {
            let biased = *x + bias;
            *x = biased * normal_cdf(biased);
        }
    }
}
