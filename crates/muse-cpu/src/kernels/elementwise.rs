//! Elementwise kernels: operations on two operands, and the softcap.

use super::math::{sigmoid, tanh};
use super::per_isa::per_isa;

/// `x[i] = f(x[i], y[i])`; both have the same length.
pub type Binary = fn(x: &mut [f32], y: &[f32]);
/// `x = cap · tanh(x · scale / cap)`; an infinite cap means `x = x · scale`.
pub type Softcap = fn(x: &mut [f32], scale: f32, cap: f32);

/// `x · sigmoid(y)`.
pub mod sigmoid_mul {
    super::per_isa!(super::Binary = fn(x: &mut [f32], y: &[f32]), super::sigmoid_mul_loop);
}

/// `silu(x) · y`.
pub mod silu_mul {
    super::per_isa!(super::Binary = fn(x: &mut [f32], y: &[f32]), super::silu_mul_loop);
}

/// `x + y`.
pub mod add {
    super::per_isa!(super::Binary = fn(x: &mut [f32], y: &[f32]), super::add_loop);
}

/// Scaling and the softcap.
pub mod softcap {
    super::per_isa!(super::Softcap = fn(x: &mut [f32], scale: f32, cap: f32), super::softcap_loop);
}

#[inline(always)]
fn sigmoid_mul_loop(x: &mut [f32], y: &[f32]) {
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
fn softcap_loop(x: &mut [f32], scale: f32, cap: f32) {
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
