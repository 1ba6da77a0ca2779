//! Log-probabilities of the model's own logits, before penalties, bias, mask and temperature.

use super::filter;
use crate::contract::{Sampled, Token};

/// The sampled token with its log-probability and the `count` likeliest ones.
pub(super) fn report(logits: &[f32], token: Token, count: usize) -> Sampled {
    let norm = log_sum_exp(logits);
    let logprob = |logit: f32| {
        let value = (f64::from(logit) - norm) as f32;
        if value.is_nan() { f32::NEG_INFINITY } else { value }
    };
    let mut kept = Vec::new();
    filter::largest(logits, count.min(logits.len()), &mut kept);
    let top = filter::ranked(&mut kept).map(|(t, value)| (Token(t), logprob(value))).collect();
    let logit = logits.get(token.0 as usize).copied().unwrap_or(f32::NEG_INFINITY);
    Sampled { token, logprob: logprob(logit), top }
}

/// `ln Σ exp(logit)`, summed in id order so that equal rows give equal bits.
fn log_sum_exp(logits: &[f32]) -> f64 {
    let best = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    if !best.is_finite() {
        return best;
    }
    let numbers = logits.iter().filter(|logit| !logit.is_nan());
    best + numbers.map(|&logit| (f64::from(logit) - best).exp()).sum::<f64>().ln()
}
