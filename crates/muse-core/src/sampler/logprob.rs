//! Log-probabilities of the logits as the model gave them, before any setting touched them.

use super::filter;
use crate::contract::{Sampled, Token};

/// The chosen token with its log-probability and the `wanted` likeliest ones.
pub(super) fn report(logits: &[f32], token: Token, wanted: usize) -> Sampled {
    let norm = log_sum_exp(logits);
    let logprob = |score: f32| {
        let value = (f64::from(score) - norm) as f32;
        if value.is_nan() { f32::NEG_INFINITY } else { value }
    };
    let mut kept = Vec::new();
    filter::largest(logits, wanted.min(logits.len()), &mut kept);
    let top = filter::ranked(&mut kept).map(|(t, value)| (Token(t), logprob(value))).collect();
    let score = logits.get(token.0 as usize).copied().unwrap_or(f32::NEG_INFINITY);
    Sampled { token, logprob: logprob(score), top }
}

/// `ln Σ exp(score)`, summed in id order so that equal rows give equal bits.
fn log_sum_exp(logits: &[f32]) -> f64 {
    let best = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    if !best.is_finite() {
        return best;
    }
    let numbers = logits.iter().filter(|s| !s.is_nan());
    best + numbers.map(|&s| (f64::from(s) - best).exp()).sum::<f64>().ln()
}
