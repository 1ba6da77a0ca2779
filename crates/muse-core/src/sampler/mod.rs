//! Samples a token from logits: the definition of [`crate::contract::Backend::sample`] for every
//! device. A sample depends on its own row and settings only, its noise on `(seed, position)` only.

mod filter;
mod logprob;
mod noise;
#[cfg(test)]
mod tests;

use std::cell::RefCell;

use crate::contract::{SampleRow, Sampled, Sampling, Token};
use crate::{Error, Result};
use filter::Candidate;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Buffers that samples on one thread reuse.
#[derive(Default)]
struct Scratch {
    values: Vec<f32>,
    kept: Vec<Candidate>,
}

/// Samples from `logits`, one row `[vocab]` after scale and soft cap. `row.row` is not read.
///
/// Logits that are NaN are never sampled; among equals the lowest id wins. When no token can be
/// sampled the result is token 0: callers make sure that a mask allows something. If all logits
/// are NaN, so is the log-probability of the result.
///
/// ```
/// use muse_core::contract::{History, SampleRow, Sampling, Token};
/// let (sampling, history) = (Sampling::default(), History::default());
/// let row = SampleRow {
///     row: 0,
///     sampling: &sampling,
///     history: &history,
///     drafted: &[],
///     mask: None,
///     position: 7,
///     logprobs: None,
/// };
/// assert_eq!(muse_core::sampler::sample(&[0.5, 2.0, 1.0], &row).token, Token(1));
/// ```
pub fn sample(logits: &[f32], row: &SampleRow<'_>) -> Sampled {
    let token = SCRATCH.with_borrow_mut(|Scratch { values, kept }| {
        let values = if adjusts_logits(row) {
            adjust(logits, row, values);
            values.as_slice()
        } else {
            logits
        };
        if row.sampling.temperature == 0.0 {
            argmax(values)
        } else {
            filter::keep(values, row.sampling, kept);
            draw(kept, noise::uniform(row.sampling.seed, row.position))
        }
    });
    if logits.iter().all(|logit| logit.is_nan()) {
        return Sampled { token, logprob: f32::NAN, top: Vec::new() };
    }
    match row.logprobs {
        None => Sampled { token, logprob: 0.0, top: Vec::new() },
        Some(count) => logprob::report(logits, token, count as usize),
    }
}

/// Checks settings of a request. `vocab` bounds the tokens of the logit bias.
///
/// # Errors
/// [`Error::Invalid`] names the field, its value and the allowed values.
pub fn validate(sampling: &Sampling, vocab: usize) -> Result<()> {
    let Sampling { temperature, top_p, min_p, repetition_penalty, .. } = *sampling;
    let Sampling { frequency_penalty, presence_penalty, .. } = *sampling;
    check("temperature", temperature, temperature >= 0.0, "a number from 0 (greedy) up")?;
    check("top_p", top_p, (0.0..=1.0).contains(&top_p), "0 to 1")?;
    check("min_p", min_p, (0.0..=1.0).contains(&min_p), "0 to 1")?;
    check("repetition_penalty", repetition_penalty, repetition_penalty > 0.0, "above 0")?;
    check("frequency_penalty", frequency_penalty, true, "a finite number")?;
    check("presence_penalty", presence_penalty, true, "a finite number")?;
    for &(token, bias) in &sampling.logit_bias {
        if token.0 as usize >= vocab {
            return Err(Error::Invalid(format!(
                "logit_bias names token {}, the vocabulary has {vocab} tokens",
                token.0
            )));
        }
        check("logit_bias", bias, true, "a finite number")?;
    }
    Ok(())
}

fn check(field: &str, value: f32, fits: bool, expected: &str) -> Result<()> {
    if value.is_finite() && fits {
        return Ok(());
    }
    Err(Error::Invalid(format!("{field} is {value}, expected {expected}")))
}

/// Whether penalties read the tokens of a sequence; if not, no history has to be kept.
pub fn counts_history(sampling: &Sampling) -> bool {
    sampling.repetition_penalty != 1.0
        || sampling.frequency_penalty != 0.0
        || sampling.presence_penalty != 0.0
}

fn adjusts_logits(row: &SampleRow<'_>) -> bool {
    row.mask.is_some() || !row.sampling.logit_bias.is_empty() || counts_history(row.sampling)
}

/// Applies penalties, then logit bias, then the mask.
fn adjust(logits: &[f32], row: &SampleRow<'_>, values: &mut Vec<f32>) {
    values.clear();
    values.extend_from_slice(logits);
    if counts_history(row.sampling) {
        penalise(row, values);
    }
    for &(token, bias) in &row.sampling.logit_bias {
        if let Some(value) = values.get_mut(token.0 as usize) {
            *value += bias;
        }
    }
    if let Some(mask) = row.mask {
        for (i, block) in values.chunks_mut(32).enumerate() {
            let word = mask.words.get(i).copied().unwrap_or(0);
            if word != u32::MAX {
                for (bit, value) in block.iter_mut().enumerate() {
                    if word >> bit & 1 == 0 {
                        *value = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }
}

/// Applies the penalties once to every token of prompt, completion and draft.
fn penalise(row: &SampleRow<'_>, values: &mut [f32]) {
    let (history, drafted) = (row.history, row.drafted);
    let drafts = |token: Token| drafted.iter().filter(|&&t| t == token).count() as u32;
    for (&token, &count) in &history.completion {
        penalise_one(values, row.sampling, token, count + drafts(token));
    }
    for (i, &token) in drafted.iter().enumerate() {
        if !history.completion.contains_key(&token) && !drafted[..i].contains(&token) {
            penalise_one(values, row.sampling, token, drafts(token));
        }
    }
    if row.sampling.repetition_penalty != 1.0 {
        for &token in &history.prompt {
            if !history.completion.contains_key(&token) && !drafted.contains(&token) {
                penalise_one(values, row.sampling, token, 0);
            }
        }
    }
}

fn penalise_one(values: &mut [f32], sampling: &Sampling, token: Token, count: u32) {
    let Some(value) = values.get_mut(token.0 as usize) else { return };
    if *value > 0.0 {
        *value /= sampling.repetition_penalty;
    } else {
        *value *= sampling.repetition_penalty;
    }
    if count > 0 {
        *value -= sampling.frequency_penalty * count as f32 + sampling.presence_penalty;
    }
}

/// The first of the largest values.
fn argmax(values: &[f32]) -> Token {
    const LANES: usize = 16;
    let larger = |best: f32, value: f32| if value > best { value } else { best };
    let mut best = [f32::NEG_INFINITY; LANES];
    let (blocks, rest) = values.as_chunks::<LANES>();
    for block in blocks {
        for (best, &value) in best.iter_mut().zip(block) {
            *best = larger(*best, value);
        }
    }
    let best = best.iter().chain(rest).copied().fold(f32::NEG_INFINITY, larger);
    Token(values.iter().position(|&value| value == best).unwrap_or(0) as u32)
}

/// The token at the share `noise` of the summed weights, in id order.
fn draw(kept: &[Candidate], noise: f64) -> Token {
    let total: f64 = kept.iter().map(|c| c.weight).sum();
    let mut left = noise * total;
    let mut sampled = 0;
    for candidate in kept.iter().filter(|c| c.weight > 0.0) {
        // Rounding may leave a rest behind the last candidate, which is then the result.
        sampled = candidate.token;
        left -= candidate.weight;
        if left < 0.0 {
            break;
        }
    }
    Token(sampled)
}
