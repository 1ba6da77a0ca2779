//! Log-probabilities of the scores as the model gave them, before any setting touched them.

use super::filter;
use crate::contract::{Picked, Token};

/// The chosen token with its log-probability and the `wanted` likeliest ones.
pub(super) fn report(scores: &[f32], token: Token, wanted: usize) -> Picked {
    let norm = log_sum_exp(scores);
    let logprob = |score: f32| {
        let value = (f64::from(score) - norm) as f32;
        if value.is_nan() { f32::NEG_INFINITY } else { value }
    };
    let mut kept = Vec::new();
    filter::largest(scores, wanted.min(scores.len()), &mut kept);
    let top = filter::ranked(&mut kept).map(|(t, value)| (Token(t), logprob(value))).collect();
    let score = scores.get(token.0 as usize).copied().unwrap_or(f32::NEG_INFINITY);
    Picked { token, logprob: logprob(score), top }
}

/// `ln Σ exp(score)`, summed in id order so that equal rows give equal bits.
fn log_sum_exp(scores: &[f32]) -> f64 {
    let best = f64::from(scores.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    if !best.is_finite() {
        return best;
    }
    let numbers = scores.iter().filter(|s| !s.is_nan());
    best + numbers.map(|&s| (f64::from(s) - best).exp()).sum::<f64>().ln()
}
