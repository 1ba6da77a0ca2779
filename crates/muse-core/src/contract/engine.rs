//! Requests in, events out.

use std::ops::ControlFlow;
use std::time::Duration;

use super::sampling::{Constraint, Sampled, Sampling};
use super::sequence::{SeqId, Token};
use super::vision::Patches;
use crate::{Error, Result};

/// The engine as the front ends see it.
pub trait Engine: Send + Sync {
    /// Queues a request. Exactly one [`Event::Done`] follows a success.
    ///
    /// # Errors
    /// [`Error::Exhausted`] when the queue is full, [`Error::Invalid`] when it can never fit
    /// (the message has the numbers).
    fn submit(&self, request: Request, sink: Sink) -> Result<SeqId>;
    /// Ends a sequence at the next step, prefill included. Unknown and ended ids are ignored.
    fn cancel(&self, seq: SeqId);
}

/// Where events go, called on the engine's thread: it must not block. `Break` cancels.
pub type Sink = Box<dyn FnMut(Event) -> ControlFlow<()> + Send>;

/// What to generate.
pub struct Request {
    /// The prompt, at least one token.
    pub prompt: Vec<Segment>,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Tokens that end the completion; the one met is part of it.
    pub stop: Vec<Token>,
    /// The most tokens to generate; none, or more than the room left, means what room is left.
    pub max_tokens: Option<u32>,
    /// The drafts of every verify, as many as the drafter makes at most; 0 drafts nothing. None
    /// leaves it to the engine.
    pub max_draft: Option<u32>,
    /// Log-probabilities to report with each token: alternatives wanted.
    pub logprobs: Option<u32>,
    /// Grammar or budget.
    pub constraint: Option<Box<dyn Constraint>>,
    /// When to give up, counted from submission: callers do not know the engine's clock.
    pub deadline: Option<Duration>,
    /// Higher goes first.
    pub priority: i32,
}

/// A part of a prompt.
#[derive(Clone, Debug)]
pub enum Segment {
    /// Text.
    Tokens(Vec<Token>),
    /// A picture in place of its placeholder tokens.
    Patches(Patches),
}

/// What happens to a request, in order.
#[derive(Clone, Debug)]
pub enum Event {
    /// Prompt rows that are through the model, of how many; also at the start, with cached rows.
    Prefill {
        /// Rows done.
        done: u32,
        /// All rows.
        total: u32,
    },
    /// A token of the completion, the stop token included.
    Token(Sampled),
    /// The end; nothing follows.
    Done(Done),
}

/// How a request ended.
#[derive(Clone, Debug)]
pub struct Done {
    /// Why.
    pub reason: FinishReason,
    /// What it took.
    pub usage: Usage,
    /// How long it took.
    pub timings: Timings,
}

/// Why a request ended.
#[derive(Clone, Debug)]
pub enum FinishReason {
    /// A stop token came.
    Stop(Token),
    /// `max_tokens` or the model's positions are used up.
    Length,
    /// The client left or asked to stop.
    Cancelled,
    /// The deadline passed.
    Deadline,
    /// The engine failed.
    Failed(Error),
}

/// What a request took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Rows of the prompt.
    pub prompt: u32,
    /// Those found in the cache.
    pub cached: u32,
    /// Tokens generated, the stop token included.
    pub completion: u32,
    /// Tokens guessed.
    pub drafted: u32,
    /// Draft tokens kept, for each verify pass that carried drafts.
    pub accepted: Vec<u32>,
}

/// How long a request took, as `TENSTORRENT.md` "Metrics" defines the rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// From submission to the first step that ran it.
    pub queued: Duration,
    /// From that step to the first token.
    pub prefill: Duration,
    /// From the first token to the last: the decode loop alone.
    pub decode: Duration,
}

impl Timings {
    /// From submission to the end.
    pub fn total(&self) -> Duration {
        self.queued + self.prefill + self.decode
    }
}

impl Usage {
    /// Completion tokens over the whole time, per second; 0 when no time passed.
    pub fn tokens_per_second(&self, timings: &Timings) -> f64 {
        rate(self.completion, timings.total())
    }

    /// Prompt tokens that were run, over the prefill time.
    pub fn prefill_tokens_per_second(&self, timings: &Timings) -> f64 {
        rate(self.prompt - self.cached, timings.prefill)
    }

    /// Tokens after the first over the decode loop alone, per second.
    pub fn ar_decode_tokens_per_second(&self, timings: &Timings) -> f64 {
        rate(self.completion.saturating_sub(1), timings.decode)
    }
}

fn rate(tokens: u32, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { f64::from(tokens) / time.as_secs_f64() }
}
