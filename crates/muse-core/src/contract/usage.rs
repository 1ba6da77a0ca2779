//! What requests took: tokens, times, and the rates that follow from both.

use std::time::Duration;

/// Tokens of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Those whose K and V were found in the cache.
    pub cached: u32,
    /// Tokens generated, the stop token included.
    pub completion: u32,
    /// Every verify of draft tokens, in order.
    pub verifies: Vec<Verify>,
}

/// A verify of draft tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verify {
    /// Completion tokens before it.
    pub completion: u32,
    /// Draft tokens that it verified.
    pub drafted: u32,
    /// Draft tokens that it accepted: the completion tokens behind `completion`.
    pub accepted: u32,
}

impl Usage {
    /// Draft tokens verified.
    pub fn drafted(&self) -> u32 {
        self.verifies.iter().map(|verify| verify.drafted).sum()
    }

    /// Draft tokens accepted.
    pub fn accepted(&self) -> u32 {
        self.verifies.iter().map(|verify| verify.accepted).sum()
    }

    /// Draft tokens accepted, by verify.
    pub fn accepted_by_verify(&self) -> impl Iterator<Item = u32> + Clone {
        self.verifies.iter().map(|verify| verify.accepted)
    }

    /// Makes it the usage of the first `completion` tokens: for an answer that ends before the last
    /// generated token, at a stop text. The result does not depend on how many tokens followed.
    pub fn truncate(&mut self, completion: u32) {
        self.completion = self.completion.min(completion);
        self.verifies.retain(|verify| verify.completion < completion);
        if let Some(last) = self.verifies.last_mut() {
            last.accepted = last.accepted.min(completion - last.completion);
        }
    }
}

/// Times of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// From submission to the first step that ran it.
    pub queued: Duration,
    /// From that step to the first token.
    pub prefill: Duration,
    /// From the first token to the last.
    pub decode: Duration,
}

impl Timings {
    /// From submission to the last token.
    pub fn total(&self) -> Duration {
        self.queued + self.prefill + self.decode
    }

    /// The longer of each time: what requests that ran side by side took together.
    pub fn max(self, other: Self) -> Self {
        Self {
            queued: self.queued.max(other.queued),
            prefill: self.prefill.max(other.prefill),
            decode: self.decode.max(other.decode),
        }
    }
}

/// Rates of one completion, or of several completions of one prompt that ran side by side. A rate
/// over no time is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Completion tokens per second from submission to the last token.
    pub tokens_per_second: f64,
    /// Prompt tokens that were run, cached ones left out, per second of the prefill.
    pub prefill_tokens_per_second: f64,
    /// Tokens after the first, per second of the decode.
    pub ar_decode_tokens_per_second: f64,
    /// Draft tokens accepted per verify that had any; 0 without such a verify.
    pub accepted_drafts_per_verify: f64,
}

impl Rates {
    /// Rates of completions: their tokens together over the longest of their times. The prompt
    /// counts once.
    pub fn of<'a>(completions: impl IntoIterator<Item = (&'a Usage, &'a Timings)>) -> Self {
        let (mut longest, mut total) = (Timings::default(), Duration::ZERO);
        let (mut prefilled, mut tokens, mut after_first) = (None, 0, 0);
        let (mut verifies, mut accepted) = (0, 0);
        for (usage, timings) in completions {
            longest = longest.max(*timings);
            total = total.max(timings.total());
            prefilled.get_or_insert(usage.prompt - usage.cached);
            tokens += usage.completion;
            after_first += usage.completion.saturating_sub(1);
            verifies += usage.verifies.len();
            accepted += usage.accepted();
        }
        Self {
            tokens_per_second: rate(tokens, total),
            prefill_tokens_per_second: rate(prefilled.unwrap_or(0), longest.prefill),
            ar_decode_tokens_per_second: rate(after_first, longest.decode),
            accepted_drafts_per_verify: f64::from(accepted) / verifies.max(1) as f64,
        }
    }
}

fn rate(tokens: u32, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { f64::from(tokens) / time.as_secs_f64() }
}
