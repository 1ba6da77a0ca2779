//! Operations on pairs of values, and the soft cap.

use super::math::{sigmoid, tanh};
use super::plain::per_isa;

/// `x[i] = f(x[i], y[i])`.
pub type Pairs = fn(x: &mut [f32], y: &[f32]);
/// `x = cap · tanh(x · scale / cap)`; an infinite cap means `x = x · scale`.
pub type Cap = fn(x: &mut [f32], scale: f32, cap: f32);

/// `x · sigmoid(y)`.
pub mod gate {
    super::per_isa!(super::Pairs = fn(x: &mut [f32], y: &[f32]), super::gate_loop);
}

/// `silu(x) · y`.
pub mod silu_mul {
    super::per_isa!(super::Pairs = fn(x: &mut [f32], y: &[f32]), super::silu_mul_loop);
}

/// `x + y`.
pub mod add {
    super::per_isa!(super::Pairs = fn(x: &mut [f32], y: &[f32]), super::add_loop);
}

/// The soft cap.
pub mod cap {
    super::per_isa!(super::Cap = fn(x: &mut [f32], scale: f32, cap: f32), super::cap_loop);
}

#[inline(always)]
fn gate_loop(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x *= sigmoid(*y);
    }
}

#[inline(always)]
fn silu_mul_loop(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x = *x * sigmoid(*x) * y;
    }
}

#[inline(always)]
fn add_loop(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

#[inline(always)]
fn cap_loop(x: &mut [f32], scale: f32, cap: f32) {
    if cap.is_infinite() {
        for x in x {
            *x *= scale;
        }
    } else {
        for x in x {
            *x = cap * tanh(*x * scale / cap);
        }
    }
}
