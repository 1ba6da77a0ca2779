//! One block of a running softmax.

use super::math::exp;
use super::norm::halve;
use super::plain::per_isa;

const LANES: usize = 32;

/// What a running softmax remembers between blocks.
#[derive(Clone, Copy, Debug)]
pub struct Running {
    /// The largest score so far.
    pub largest: f32,
    /// Sum of `exp(score - largest)`.
    pub total: f32,
}

impl Running {
    /// Before the first block.
    pub const START: Self = Self { largest: f32::NEG_INFINITY, total: 0.0 };
}

/// Turns scores into `exp(score · scale - largest)`, moves the running maximum and total on, and
/// returns the factor for what was summed before.
pub type Soften = fn(scores: &mut [f32], scale: f32, running: &mut Running) -> f32;

per_isa!(Soften = fn(scores: &mut [f32], scale: f32, running: &mut Running) -> f32, soften);

#[inline(always)]
fn soften(scores: &mut [f32], scale: f32, running: &mut Running) -> f32 {
    let before = running.largest;
    let mut tops = [before; LANES];
    for block in scores.chunks_mut(LANES) {
        for (top, score) in tops.iter_mut().zip(block) {
            *score *= scale;
            *top = if *score > *top { *score } else { *top };
        }
    }
    let largest = tops.into_iter().fold(before, f32::max);
    for score in scores.iter_mut() {
        *score = exp(*score - largest);
    }
    let mut sums = [0.0; LANES];
    for block in scores.chunks(LANES) {
        for (sum, p) in sums.iter_mut().zip(block) {
            *sum += p;
        }
    }
    let keep = exp(before - largest);
    *running = Running { largest, total: running.total * keep + halve(sums) };
    keep
}
