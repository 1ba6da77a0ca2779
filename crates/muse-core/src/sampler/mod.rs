//! Chooses a token from logits: the definition that every device's `pick` agrees with. A choice
//! depends on its own row and settings alone, its noise on `(seed, position)` alone.

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

/// Memory that choices on one thread reuse.
#[derive(Default)]
struct Scratch {
    values: Vec<f32>,
    kept: Vec<Candidate>,
}

/// Chooses from `logits`, one row `[vocab]` after scale and cap (`row.row` is not looked at).
///
/// Scores that are not numbers are never chosen; among equals the lowest id wins. When nothing can
/// be chosen at all the answer is token 0: callers see to it that a mask allows something. A row
/// without any number gives a token whose log-probability is none either.
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
        let values = if changes_scores(row) {
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
    if logits.iter().all(|score| score.is_nan()) {
        return Sampled { token, logprob: f32::NAN, top: Vec::new() };
    }
    match row.logprobs {
        None => Sampled { token, logprob: 0.0, top: Vec::new() },
        Some(wanted) => logprob::report(logits, token, wanted as usize),
    }
}

/// Checks settings that came from outside. `vocab` bounds the tokens of the logit bias.
///
/// # Errors
/// [`Error::Invalid`] names the field, what it holds and what it may hold.
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

/// Whether the penalties look at what a sequence said: without them no history need be kept.
pub fn counts_history(sampling: &Sampling) -> bool {
    sampling.repetition_penalty != 1.0
        || sampling.frequency_penalty != 0.0
        || sampling.presence_penalty != 0.0
}

fn changes_scores(row: &SampleRow<'_>) -> bool {
    row.mask.is_some() || !row.sampling.logit_bias.is_empty() || counts_history(row.sampling)
}

/// Penalties, then logit bias, then the mask.
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

/// Every token of prompt, completion and draft, each once.
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

/// The first of the largest numbers.
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

/// Walks the weights, in id order, up to the share `noise` of their sum.
fn draw(kept: &[Candidate], noise: f64) -> Token {
    let total: f64 = kept.iter().map(|c| c.weight).sum();
    let mut left = noise * total;
    let mut chosen = 0;
    for candidate in kept.iter().filter(|c| c.weight > 0.0) {
        // Rounding may leave a rest behind the last one, which then is it.
        chosen = candidate.token;
        left -= candidate.weight;
        if left < 0.0 {
            break;
        }
    }
    Token(chosen)
}
