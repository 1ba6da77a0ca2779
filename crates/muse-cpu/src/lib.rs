//! The CPU backend: SIMD kernels with a scalar reference beside each.
