//! A round of multiply-adds: its size, and the portable one.

use std::hint::black_box;

/// Steps of a round of arithmetic.
pub(super) const STEPS: usize = 20_000;
/// Independent accumulators, so that the latency of an instruction does not limit its rate.
pub(super) const CHAINS: usize = 12;
/// Multiply-adds in single precision, as the compiler vectorizes them for the target.
pub(super) fn f32_plain() -> usize {
    let (factor, mut sums) = (black_box(0.5_f32), [0.0_f32; 4 * CHAINS]);
    for _ in 0..STEPS {
        for sum in &mut sums {
            *sum = *sum * factor + factor;
        }
    }
    black_box(sums);
    2 * STEPS * sums.len()
}
