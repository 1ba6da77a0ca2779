//! One block of a running softmax.

use muse_core::contract::KV_BLOCK_SIZE;

use super::math::exp;
use super::plain::per_isa;

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

/// Turns at most a page of scores into `exp(score · scale - largest)`, moves the running maximum
/// and total on, and returns the factor for what was summed before.
pub type Soften = fn(scores: &mut [f32], scale: f32, running: &mut Running) -> f32;

per_isa!(Soften = fn(scores: &mut [f32], scale: f32, running: &mut Running) -> f32, soften);

#[inline(always)]
fn soften(scores: &mut [f32], scale: f32, running: &mut Running) -> f32 {
    if let Ok(page) = scores.try_into() {
        return soften_page(page, scale, running);
    }
    // What weighs nothing behind them makes all blocks one length.
    let mut page = [f32::NEG_INFINITY * scale.signum(); KV_BLOCK_SIZE];
    page[..scores.len()].copy_from_slice(scores);
    let keep = soften_page(&mut page, scale, running);
    scores.copy_from_slice(&page[..scores.len()]);
    keep
}

/// A length known to the compiler stays in registers.
#[inline(always)]
fn soften_page(page: &mut [f32; KV_BLOCK_SIZE], scale: f32, running: &mut Running) -> f32 {
    let mut scores = *page;
    scores.iter_mut().for_each(|score| *score *= scale);
    let before = running.largest;
    let top = fold(scores, |a, b| if a > b { a } else { b });
    let largest = if top > before { top } else { before };
    scores.iter_mut().for_each(|score| *score = exp(*score - largest));
    let keep = exp(before - largest);
    let total = running.total * keep + fold(scores, |a, b| a + b);
    *running = Running { largest, total };
    *page = scores;
    keep
}

/// Joins all values, halves onto each other.
#[inline(always)]
fn fold(values: [f32; KV_BLOCK_SIZE], join: impl Fn(f32, f32) -> f32) -> f32 {
    macro_rules! halves {
        ($values:expr; $($half:literal)*) => {{
            let values = $values;
            $(let values: [f32; $half] = std::array::from_fn(|i| join(values[i], values[i + $half]));)*
            values[0]
        }};
    }
    halves!(values; 32 16 8 4 2 1)
}
