//! One step of an online softmax: the scores of a KV block.

use muse_core::contract::KV_BLOCK_SIZE;

use super::math::exp;
use super::per_isa::per_isa;

/// The state of an online softmax between KV blocks.
#[derive(Clone, Copy, Debug)]
pub struct SoftmaxState {
    /// The largest scaled score so far.
    pub max: f32,
    /// Sum of `exp(score · scale - max)` so far.
    pub sum: f32,
}

impl SoftmaxState {
    /// The state before the first KV block.
    pub const EMPTY: Self = Self { max: f32::NEG_INFINITY, sum: 0.0 };
}

/// Replaces the scores of at most a KV block by `exp(score · scale - max)` with the maximum of all
/// scores so far, updates the state, and returns the factor by which sums under the former maximum
/// must be rescaled.
pub type OnlineSoftmax = fn(scores: &mut [f32], scale: f32, state: &mut SoftmaxState) -> f32;

per_isa!(
    OnlineSoftmax = fn(scores: &mut [f32], scale: f32, state: &mut SoftmaxState) -> f32,
    online_softmax
);

#[inline(always)]
fn online_softmax(scores: &mut [f32], scale: f32, state: &mut SoftmaxState) -> f32 {
    if let Ok(block) = scores.try_into() {
        return softmax_of_block(block, scale, state);
    }
    // Padding with scores of weight 0 gives every block the same length.
    let mut block = [f32::NEG_INFINITY * scale.signum(); KV_BLOCK_SIZE];
    block[..scores.len()].copy_from_slice(scores);
    let rescale = softmax_of_block(&mut block, scale, state);
    scores.copy_from_slice(&block[..scores.len()]);
    rescale
}

/// A length that the compiler knows lets all scores stay in registers.
#[inline(always)]
fn softmax_of_block(block: &mut [f32; KV_BLOCK_SIZE], scale: f32, state: &mut SoftmaxState) -> f32 {
    let mut scores = *block;
    scores.iter_mut().for_each(|score| *score *= scale);
    let before = state.max;
    let top = tree_fold(scores, |a, b| if a > b { a } else { b });
    let max = if top > before { top } else { before };
    scores.iter_mut().for_each(|score| *score = exp(*score - max));
    let rescale = exp(before - max);
    let sum = state.sum * rescale + tree_fold(scores, |a, b| a + b);
    *state = SoftmaxState { max, sum };
    *block = scores;
    rescale
}

/// Combines all values: the upper half with the lower one, until one is left.
#[inline(always)]
fn tree_fold(values: [f32; KV_BLOCK_SIZE], combine: impl Fn(f32, f32) -> f32) -> f32 {
    macro_rules! halves {
        ($values:expr; $($half:literal)*) => {{
            let values = $values;
            $(let values: [f32; $half] =
                std::array::from_fn(|i| combine(values[i], values[i + $half]));)*
            values[0]
        }};
    }
    halves!(values; 32 16 8 4 2 1)
}
