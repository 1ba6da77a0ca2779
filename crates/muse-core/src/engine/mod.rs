//! The loop that runs requests: a state machine that reads no clock and owns no thread ([`EngineCore`]),
//! and the thread that turns it ([`spawn`]).
//!
//! A sequence is its tokens and the rows of them that are in the cache. Whatever it does, prompt,
//! decode, resumption after it had to make room, a step runs the next rows of it and draws a token
//! when it ran the last one. Draft tokens are tokens appended on trial.

mod limits;
mod offload;
mod schedule;
mod seq;
mod speculation;
mod step;
mod thread;

use std::sync::Arc;
use std::time::Duration;

use crate::Error;
use crate::contract::KvOffloadStore;

pub use limits::Limits;
pub use step::EngineCore;
pub use thread::{EngineHandle, Load, spawn};

/// Called on the engine's thread with what stopped it; it must not wait for that thread.
pub type FailureHook = Arc<dyn Fn(&Error) + Send + Sync>;

/// How an engine runs.
#[derive(Clone)]
pub struct EngineOptions {
    /// The most tokens of a sequence, prompt and completion; the model's own limit if lower.
    pub max_positions: u32,
    /// The most requests that wait.
    pub queue: usize,
    /// The most sequences that run at a time.
    pub max_num_seqs: usize,
    /// The most prompt rows of one sequence in a step.
    pub prefill_chunk: usize,
    /// The most rows of a step, all sequences together.
    pub max_num_batched_tokens: usize,
    /// The most prompt rows of a step in which others decode: bounds the time between tokens.
    pub mixed_prefill_tokens: usize,
    /// How long such a step should take at most. By measured time, prompts get fewer rows for it,
    /// but never so few that they hardly advance.
    pub target_itl: Option<Duration>,
    /// The most drafts a verify carries, for all requests; the drafter's width if lower.
    pub max_draft: usize,
    /// Whether requests that name no length of drafts get as many drafts as pay, by measured time;
    /// else they get all. A clock that stands still measures nothing: then they get all too.
    pub adapt_draft: bool,
    /// Where KV blocks that must make way are kept. The pool must be one that tells of them, its names
    /// starting at the kv_offload's root.
    pub kv_offload: Option<Arc<dyn KvOffloadStore>>,
    /// Told once when the engine stops for good, after every request heard of it.
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
            target_itl: None,
            max_draft: usize::MAX,
            adapt_draft: true,
            kv_offload: None,
            on_failure: None,
        }
    }
}
