//! Which tokens may be sampled, and with what weight: temperature, top-k, top-p, min-p in this
//! order. A filter that removes nothing leaves the result the same for the same noise.

use std::cmp::Ordering;

use crate::contract::Sampling;

/// A token that may be sampled.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    pub(super) token: u32,
    value: f32,
    /// Its probability over that of the best token.
    pub(super) weight: f64,
}

impl Candidate {
    /// Best first, the lower id first among equals.
    fn order(a: &Self, b: &Self) -> Ordering {
        b.value.total_cmp(&a.value).then(a.token.cmp(&b.token))
    }
}

/// Fills `kept` with the tokens of `values` that may be sampled, in id order.
pub(super) fn keep(values: &[f32], sampling: &Sampling, kept: &mut Vec<Candidate>) {
    let k = sampling.top_k as usize;
    largest(values, if k == 0 { usize::MAX } else { k }, kept);
    let best = kept.iter().map(|c| c.value).fold(f32::NEG_INFINITY, f32::max);
    let temperature = f64::from(sampling.temperature);
    for candidate in kept.iter_mut() {
        candidate.weight = (f64::from(candidate.value - best) / temperature).exp();
    }
    if sampling.top_p < 1.0 {
        nucleus(kept, f64::from(sampling.top_p));
    }
    if sampling.min_p > 0.0 {
        // The best one's weight is 1.
        kept.retain(|c| c.weight >= f64::from(sampling.min_p));
    }
    kept.sort_unstable_by_key(|c| c.token);
}

/// Fills `kept` with the `k` largest of `values`, in id order. Values that are not above minus
/// infinity are left out.
pub(super) fn largest(values: &[f32], k: usize, kept: &mut Vec<Candidate>) {
    kept.clear();
    if k == 0 {
        return;
    }
    let capacity = k.saturating_mul(2).max(128);
    // Ids ascend: a later value equal to the k-th best never displaces it.
    let mut threshold = f32::NEG_INFINITY;
    for (token, &value) in values.iter().enumerate() {
        if value > threshold {
            // Adding zero turns -0 into 0; infinity would leave no finite difference.
            let value = value.min(f32::MAX) + 0.0;
            kept.push(Candidate { token: token as u32, value, weight: 0.0 });
            if kept.len() == capacity {
                threshold = truncate_to_best(kept, k);
            }
        }
    }
    if kept.len() > k {
        truncate_to_best(kept, k);
    }
    kept.sort_unstable_by_key(|c| c.token);
}

/// Truncates `kept` to its `k` best and returns the value of the worst of them.
fn truncate_to_best(kept: &mut Vec<Candidate>, k: usize) -> f32 {
    let threshold = kept.select_nth_unstable_by(k - 1, Candidate::order).1.value;
    kept.truncate(k);
    threshold
}

/// Keeps the smallest set of best tokens with at least the share `p` of all weight; at least one.
fn nucleus(kept: &mut Vec<Candidate>, p: f64) {
    let needed = p * kept.iter().map(|c| c.weight).sum::<f64>();
    let (mut sum, mut sorted, mut batch) = (0.0, 0, 64);
    while sorted < kept.len() {
        // Sorts in growing batches, only as far as the set reaches: it is small beside a
        // vocabulary.
        let rest = &mut kept[sorted..];
        let size = batch.min(rest.len());
        if size < rest.len() {
            rest.select_nth_unstable_by(size - 1, Candidate::order);
        }
        rest[..size].sort_unstable_by(Candidate::order);
        for (i, candidate) in rest[..size].iter().enumerate() {
            sum += candidate.weight;
            if sum >= needed {
                kept.truncate(sorted + i + 1);
                return;
            }
        }
        sorted += size;
        batch *= 4;
    }
}

/// Tokens and values of `kept`, best first.
pub(super) fn ranked(kept: &mut [Candidate]) -> impl Iterator<Item = (u32, f32)> {
    kept.sort_unstable_by(Candidate::order);
    kept.iter().map(|c| (c.token, c.value))
}
