//! The engine that runs requests: [`EngineCore`], a state machine without a clock or a thread, and
//! [`spawn`], which runs it on a thread of its own.
//!
//! A sequence is a list of tokens, of which the first have K and V in the cache. Every step runs the
//! next ones, whether they are prompt, a decoded token or a sequence that resumes after it was
//! preempted; after the last one a token is sampled. Draft tokens are appended for one step, and
//! removed when they were not accepted.

mod core;
mod deferred;
mod draft_stats;
mod limits;
mod models;
mod offload;
mod pictures;
mod scheduler;
mod sequence;
mod speculation;
mod step;
mod thread;

use std::sync::Arc;
use std::time::Duration;

use crate::Error;
use crate::contract::KvOffloadStore;

pub use self::core::EngineCore;
pub use limits::Limits;
pub use thread::{EngineHandle, Load, spawn};

/// Called on the engine's thread with the error that stopped it; it must not wait for that thread.
pub type FailureHook = Arc<dyn Fn(&Error) + Send + Sync>;

/// The target time of a step in which some sequences decode while others run their prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetItl {
    /// Four times a step without prompt tokens, within 50 to 500 ms; twice such a step where that
    /// is more.
    #[default]
    Auto,
    /// This time.
    Fixed(Duration),
    /// No target: prompts get all tokens that [`EngineOptions::mixed_prefill_tokens`] allows.
    Unbounded,
}

impl TargetItl {
    /// The target where a step without prompt tokens takes `decode`.
    fn time(self, decode: Duration) -> Option<Duration> {
        let bounds = (Duration::from_millis(50), Duration::from_millis(500));
        match self {
            Self::Auto => Some((4 * decode).clamp(bounds.0, bounds.1).max(2 * decode)),
            Self::Fixed(time) => Some(time),
            Self::Unbounded => None,
        }
    }
}

/// How an engine runs.
#[derive(Clone)]
pub struct EngineOptions {
    /// The most tokens of a sequence, prompt and completion; the model's own limit if lower.
    pub max_positions: u32,
    /// The most requests that wait.
    pub queue: usize,
    /// The most sequences that run at a time.
    pub max_num_seqs: usize,
    /// The most prompt tokens of one sequence in a step.
    pub prefill_chunk: usize,
    /// The most tokens of a step, all sequences together.
    pub max_num_batched_tokens: usize,
    /// The most prompt tokens of a step in which other sequences decode. Bounds the time between
    /// their tokens.
    pub mixed_prefill_tokens: usize,
    /// The target time of such a step. Prompts get fewer tokens for it, by the measured times of
    /// steps, but enough to advance.
    pub target_itl: TargetItl,
    /// The most draft tokens of a sequence in a step, for all requests; the drafter's width if
    /// lower.
    pub max_draft: usize,
    /// Whether requests that leave the number of draft tokens open get as many as pay, by the
    /// measured times of steps; else, and while nothing was measured, they get the most.
    pub adapt_draft: bool,
    /// Where evicted KV blocks are stored. The pool must offload, with the root of this store.
    pub kv_offload: Option<Arc<dyn KvOffloadStore>>,
    /// Called once when the engine stops for good, after every request was ended.
    pub on_failure: Option<FailureHook>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            max_positions: u32::MAX,
            queue: 64,
            max_num_seqs: 16,
            prefill_chunk: 2048,
            max_num_batched_tokens: 2048,
            mixed_prefill_tokens: 512,
            target_itl: TargetItl::Auto,
            max_draft: usize::MAX,
            adapt_draft: true,
            kv_offload: None,
            on_failure: None,
        }
    }
}
