//! Bounds of requests, known before anything runs.

use super::EngineOptions;
use crate::contract::{Backend, Drafter, KvPool, Request, Segment, TargetModel};
use crate::{Error, Result, sampler};

/// The most draft tokens of a verify without a drafter: those that a grammar forces.
const MAX_FORCED: usize = 16;

/// Bounds of an engine, from its model, its pool and its options.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// The most tokens of a sequence, prompt and completion: what model and options allow.
    pub max_positions: u32,
    /// The most tokens whose K/V the pool can hold at once.
    pub cache_positions: u32,
    /// Sequences that run at a time.
    pub max_num_seqs: usize,
    /// Requests that wait.
    pub queue: usize,
    /// The most tokens of a step.
    pub max_num_batched_tokens: usize,
    /// The most tokens of a step whose logits can be had.
    pub max_logits_rows: usize,
    /// The most draft tokens of a sequence in a step.
    pub draft: usize,
    /// Side of the square of patches that becomes one embedding row; none when the model reads no
    /// pictures.
    pub merge: Option<usize>,
}

impl Limits {
    /// Computes the bounds from the parts of an engine.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the parts cannot work together.
    pub(super) fn new<B: Backend>(
        target: &dyn TargetModel<B>,
        drafter: Option<&dyn Drafter<B>>,
        pool: &dyn KvPool,
        merge: Option<usize>,
        options: &EngineOptions,
    ) -> Result<Self> {
        let pass = target.limits();
        let max_logits_rows = pass.max_logits_rows;
        let max_num_batched_tokens =
            options.max_num_batched_tokens.min(pass.max_num_batched_tokens);
        let max_num_seqs = options.max_num_seqs.min(max_num_batched_tokens).min(max_logits_rows);
        let spec = target.spec();
        let max_positions =
            options.max_positions.min(u32::try_from(spec.max_positions).unwrap_or(u32::MAX));
        for (name, value) in [
            ("max_num_seqs", max_num_seqs),
            ("queue", options.queue),
            ("prefill_chunk", options.prefill_chunk),
            ("mixed_prefill_tokens", options.mixed_prefill_tokens),
            ("max_positions", max_positions as usize),
        ] {
            if value == 0 {
                return Err(Error::Invalid(format!("{name} comes to 0, it must be at least 1")));
            }
        }
        let cache_positions = capacity(pool, max_positions);
        if cache_positions < 2 {
            let total = pool.total();
            return Err(Error::Invalid(format!(
                "a KV cache of {} full and {} window blocks cannot hold a sequence of 2 tokens: give \
                 it more memory",
                total.full, total.window
            )));
        }
        let draft = drafter.map_or(MAX_FORCED, |d| d.width()).min(options.max_draft);
        Ok(Self {
            vocab: spec.vocab,
            max_positions,
            cache_positions,
            max_num_seqs,
            queue: options.queue,
            max_num_batched_tokens,
            max_logits_rows,
            draft: draft.min(max_num_batched_tokens.min(max_logits_rows) - 1),
            merge,
        })
    }

    /// The most tokens of a sequence: the lower of both bounds.
    pub fn positions(&self) -> u32 {
        self.max_positions.min(self.cache_positions)
    }

    /// Refuses requests that can never run.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the numbers, [`Error::Unsupported`] for pictures.
    pub fn check(&self, request: &Request) -> Result<()> {
        let mut prompt = 0usize;
        for segment in &request.prompt {
            let tokens = match (segment, self.merge) {
                (Segment::Tokens(tokens), _) => tokens,
                (Segment::Patches(patches), Some(merge)) => {
                    prompt += patches.rows(merge);
                    continue;
                }
                (Segment::Patches(_), None) => {
                    return Err(Error::Unsupported(
                        "the prompt holds a picture, this model has no vision tower: send text"
                            .into(),
                    ));
                }
            };
            prompt += tokens.len();
            if let Some(token) = tokens.iter().find(|t| t.0 as usize >= self.vocab) {
                return Err(Error::Invalid(format!(
                    "the prompt holds token {}, the vocabulary has {} tokens",
                    token.0, self.vocab
                )));
            }
        }
        if prompt == 0 {
            return Err(Error::Invalid("the prompt is empty, it needs at least one token".into()));
        }
        if prompt >= self.positions() as usize {
            return Err(Error::Invalid(format!(
                "the prompt has {prompt} tokens; prompt and completion together may have {} (the \
                 model and its settings allow {}, the KV cache holds {}): shorten the prompt",
                self.positions(),
                self.max_positions,
                self.cache_positions
            )));
        }
        if request.max_tokens == Some(0) {
            return Err(Error::Invalid("max_tokens is 0, expected at least 1".into()));
        }
        if let Some(max) = request.max_tokens.filter(|&max| max < request.min_tokens) {
            return Err(Error::Invalid(format!(
                "min_tokens is {}, expected at most max_tokens, which is {max}",
                request.min_tokens
            )));
        }
        sampler::validate(&request.sampling, self.vocab)
    }
}

/// Length of the longest sequence, up to `max`, that fits into an otherwise empty pool.
fn capacity(pool: &dyn KvPool, max: u32) -> u32 {
    let total = pool.total();
    let fits = |positions: u32| {
        let need = pool.worst_case(positions);
        need.full <= total.full && need.window <= total.window
    };
    let (mut low, mut high) = (0, max);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}
