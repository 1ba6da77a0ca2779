//! The engine as front ends see it: requests in, events out.

use std::ops::ControlFlow;
use std::time::Duration;

use super::sampling::{Constraint, Sampled, Sampling};
use super::sequence::{SeqId, Token};
use super::usage::{Timings, Usage};
use super::vision::Patches;
use crate::{Error, Result};

/// Runs requests, many at a time.
pub trait Engine: Send + Sync {
    /// Queues a request. On success exactly one [`Event::Done`] follows.
    ///
    /// # Errors
    /// [`Error::Exhausted`] when the queue is full, [`Error::Invalid`] when the request can never
    /// fit; the message has the numbers.
    fn submit(&self, request: Request, sink: Sink) -> Result<SeqId>;
    /// Ends a sequence at the next step, also during its prefill. Ids that are unknown or ended are
    /// ignored.
    fn cancel(&self, seq: SeqId);
}

/// Receives events on the engine's thread; it must not block. `Break` cancels the request.
pub type Sink = Box<dyn FnMut(Event) -> ControlFlow<()> + Send>;

/// A request: one prompt, one completion.
#[derive(Default)]
pub struct Request {
    /// The prompt, at least one token.
    pub prompt: Vec<Segment>,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Tokens that end the completion, which the sampled one is part of. Empty ignores every end of
    /// sequence.
    pub stop: Vec<Token>,
    /// Tokens to generate before a stop token may be sampled, unless a constraint allows nothing
    /// else.
    pub min_tokens: u32,
    /// The most tokens to generate. None, or more than fit, means as many as fit.
    pub max_tokens: Option<u32>,
    /// Draft tokens of every verify, at most the drafter's width; 0 switches drafting off. None
    /// leaves the number to the engine.
    pub max_draft: Option<u32>,
    /// Number of alternatives to report with each token's log-probability; none reports neither.
    pub logprobs: Option<u32>,
    /// A grammar or a budget.
    pub constraint: Option<Box<dyn Constraint>>,
    /// The most time until the end, counted from submission.
    pub deadline: Option<Duration>,
    /// Higher is scheduled first. A higher priority is worth a bounded waiting time, so that it
    /// delays other requests but never starves them.
    pub priority: i32,
    /// Requests that share one turn, such as the choices of one call: together they are scheduled
    /// like a single request when others want to run. None is a group of its own.
    pub group: Option<GroupId>,
}

/// A group of requests, numbered by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(pub u64);

/// A part of a prompt.
#[derive(Clone, Debug)]
pub enum Segment {
    /// Tokens of text.
    Tokens(Vec<Token>),
    /// A picture in place of its placeholder tokens.
    Patches(Patches),
}

/// An event of a request, in order.
#[derive(Clone, Debug)]
pub enum Event {
    /// Progress of the prefill; also when it starts, with the cached tokens as done.
    Prefill {
        /// Prompt tokens with K and V in the cache.
        done: u32,
        /// All prompt tokens.
        total: u32,
    },
    /// A token of the completion, the stop token included.
    Token(Sampled),
    /// The end, the last event.
    Done(Done),
}

/// How a request ended.
#[derive(Clone, Debug)]
pub struct Done {
    /// Why it ended.
    pub reason: FinishReason,
    /// Its tokens.
    pub usage: Usage,
    /// Its times.
    pub timings: Timings,
}

/// Why a request ended.
#[derive(Clone, Debug)]
pub enum FinishReason {
    /// A stop token was sampled.
    Stop(Token),
    /// `max_tokens` were generated, or the positions are used up.
    Length,
    /// [`Engine::cancel`] was called or the sink returned `Break`.
    Cancelled,
    /// The deadline passed.
    Deadline,
    /// The engine failed.
    Failed(Error),
}
