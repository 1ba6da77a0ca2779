//! The scheduler: which sequences run in a step, with how many tokens, in which KV blocks. First
//! finished sequences leave, then waiting ones are admitted, then tokens are planned, then their KV
//! blocks are reserved. When blocks are short draft tokens go first, the youngest sequence next.

use std::time::Duration;

use super::core::EngineCore;
use super::sequence::Sequence;
use super::speculation::StepBase;
use crate::contract::{Backend, BlockCount, FinishReason, KV_BLOCK_SIZE, KvPool};
use crate::{Error, Result};

/// Offloaded KV blocks that are loaded in a step, so that running sequences are not held up.
const MAX_LOADS: usize = 16;

impl<B: Backend> EngineCore<B> {
    /// Ends the sequences that were cancelled, failed or are past their deadline.
    pub(super) fn reap_finished(&mut self, now: Duration) {
        for seq in self.waiting.iter_mut().chain(&mut self.active) {
            if seq.finish.is_none() && seq.deadline.is_some_and(|deadline| now >= deadline) {
                seq.finish = Some(FinishReason::Deadline);
            }
        }
        while let Some(i) = self.waiting.iter().position(|seq| seq.finish.is_some()) {
            self.waiting.remove(i).end(now);
        }
        self.end_active(now);
    }

    /// Ends the active sequences that have a finish reason.
    pub(super) fn end_active(&mut self, now: Duration) {
        while let Some(i) = self.active.iter().position(|seq| seq.finish.is_some()) {
            let seq = self.active.remove(i);
            self.pool.close(seq.id);
            seq.end(now);
        }
    }

    /// Starts waiting sequences, best rank first, while the next step of all active ones fits into
    /// the KV blocks. None overtakes one that does not fit, so that small requests do not starve
    /// large ones; a sequence whose offloaded blocks are still being loaded is overtaken.
    pub(super) fn admit(&mut self, now: Duration) -> Result<()> {
        let (mut first, mut loads) = (0, MAX_LOADS);
        while self.active.len() < self.limits.max_num_seqs && first < self.waiting.len() {
            if self.restore(first, &mut loads)? {
                first += 1;
                continue;
            }
            let seq = &self.waiting[first];
            let keys = &mut self.buffers.keys;
            seq.keys(0..seq.tokens.len(), keys);
            let cached = self.pool.open(seq.id, keys)?;
            let chunk = (seq.tokens.len() - cached as usize).min(self.prefill_chunk);
            let end = cached + chunk as u32;
            match self.pool.reserve(seq.id, end, &mut self.copies) {
                Ok(()) if self.active.is_empty() || self.others_fit() => {}
                Err(error) if self.active.is_empty() => {
                    // It has the pool to itself: waiting would not help.
                    self.pool.close(seq.id);
                    let mut seq = self.waiting.remove(first);
                    seq.finish = Some(FinishReason::Failed(error));
                    seq.end(now);
                    continue;
                }
                Ok(()) | Err(Error::Exhausted(_)) => {
                    self.pool.close(seq.id);
                    break;
                }
                Err(error) => return Err(error),
            }
            let mut seq = self.waiting.remove(first);
            seq.start(cached, now);
            let at = self.active.partition_point(|other| other.rank() < seq.rank());
            self.active.insert(at, seq);
        }
        Ok(())
    }

    /// Loads offloaded blocks of a waiting sequence's prefix, some of the `loads` that the step has
    /// left. Returns whether more are to be loaded before it starts.
    fn restore(&mut self, waiting: usize, loads: &mut usize) -> Result<bool> {
        let seq = &mut self.waiting[waiting];
        let Some(offload) = self.offload.as_mut().filter(|_| seq.to_restore > 0) else {
            return Ok(false);
        };
        // Half of what the step has left, so that those behind may load some too.
        let count = seq.to_restore.min(loads.div_ceil(2));
        *loads -= count;
        let keys = &mut self.buffers.keys;
        seq.keys(0..seq.tokens.len(), keys);
        let pool = self.pool.as_mut();
        let found = offload.restore(pool, &mut self.models, &mut self.copies, keys, count)?;
        seq.to_restore = if found { seq.to_restore - count } else { 0 };
        Ok(seq.to_restore > 0)
    }

    /// Whether all active sequences can have the KV blocks of their next steps at the same time.
    fn others_fit(&self) -> bool {
        let mut need = BlockCount::default();
        for seq in &self.active {
            let table = self.pool.block_table(seq.id);
            let end = seq.tokens.len().min(self.pool.len(seq.id) as usize + self.prefill_chunk);
            let blocks = end.div_ceil(KV_BLOCK_SIZE);
            need.full += blocks.saturating_sub(table.full.len());
            let base = table.window_base as usize / KV_BLOCK_SIZE;
            need.window += blocks.saturating_sub(base + table.window.len());
        }
        let free = self.pool.free();
        need.full <= free.full && need.window <= free.window
    }

    /// Plans a token for every active sequence, then shares out the rest of the step: first for
    /// draft tokens, then for prompts.
    pub(super) fn plan(&mut self) {
        let count = self.active.len();
        let (mut prefilling, mut prompt_tokens) = (0, 0);
        for seq in &mut self.active {
            (seq.num_tokens, seq.verified, seq.accepted) = (1, 0, 0);
            let max = seq.max_draft_tokens().min(self.limits.draft);
            let can_draft = self.models.drafter.is_some() || seq.constraint.is_some();
            let more = pending(&*self.pool, seq) - 1;
            seq.draft_budget = if can_draft && more == 0 { max } else { 0 };
            prefilling += usize::from(more > 0);
            prompt_tokens += more;
        }
        let mut left = self.limits.max_num_batched_tokens - count;
        let max_prefill = if prefilling < count { self.mixed_prefill(count, left) } else { left };
        // Prompts keep at least half: draft tokens must not hold them up.
        let drafts = if prefilling > 0 { left / 2 } else { left };
        let drafts = drafts.min(self.limits.max_logits_rows - count);
        let tokens = count + prompt_tokens.min(max_prefill);
        let base = StepBase { tokens, sampling: count - prefilling, draft_blocks: 0 };
        left -= self.plan_drafts(drafts, base);
        self.plan_prefill(left.min(max_prefill), prefilling);
    }

    /// Shares `budget` prompt tokens out among the `prefilling` sequences, evenly.
    fn plan_prefill(&mut self, mut budget: usize, mut prefilling: usize) {
        for seq in &mut self.active {
            let pending = pending(&*self.pool, seq);
            if pending > 1 {
                let more = (budget / prefilling).min(pending.min(self.prefill_chunk) - 1);
                seq.num_tokens += more;
                budget -= more;
                prefilling -= 1;
            }
        }
    }

    /// The most prompt tokens of a step in which `count` sequences have a token each and some
    /// decode.
    fn mixed_prefill(&self, count: usize, left: usize) -> usize {
        let max = left.min(self.mixed_prefill_tokens);
        match self.target_itl {
            Some(time) => self.speculation.tokens_within(count, max, time),
            None => max,
        }
    }

    /// Shares up to `budget` draft tokens out: evenly among requests that name their number, by
    /// what pays among the others. Returns how many were given.
    fn plan_drafts(&mut self, budget: usize, mut base: StepBase) -> usize {
        let mut left = budget;
        let mut drafting = self.active.iter().filter(|seq| seq.draft_budget > 0).count();
        for seq in self.active.iter_mut().filter(|seq| seq.draft_budget > 0 && !seq.adaptive) {
            seq.draft_budget = seq.draft_budget.min(left / drafting);
            left -= seq.draft_budget;
            drafting -= 1;
            base.tokens += seq.draft_budget;
            base.draft_blocks += usize::from(seq.draft_budget > 0);
        }
        self.speculation.share_out(&mut self.active, base, left);
        self.active.iter().map(|seq| seq.draft_budget).sum()
    }

    /// Reserves KV blocks for the planned tokens, best rank first.
    pub(super) fn reserve(&mut self, now: Duration) -> Result<()> {
        let mut i = 0;
        while i < self.active.len() {
            let alone = self.active.len() == 1;
            let seq = &mut self.active[i];
            // A drafter writes whole blocks, however few draft tokens are wanted.
            let drafts = match &self.models.drafter {
                Some(drafter) if seq.draft_budget > 0 => drafter.width().max(seq.draft_budget),
                _ => seq.draft_budget,
            };
            let end = self.pool.len(seq.id) + (seq.num_tokens + drafts) as u32;
            match self.pool.reserve(seq.id, end, &mut self.copies) {
                Ok(()) => i += 1,
                Err(Error::Exhausted(_)) if seq.draft_budget > 0 => seq.draft_budget = 0,
                Err(error @ Error::Exhausted(_)) if alone => {
                    seq.finish = Some(FinishReason::Failed(error));
                    self.end_active(now);
                }
                Err(Error::Exhausted(_)) => self.preempt_youngest(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Frees the KV blocks of the active sequence with the worst rank. It waits again and will be
    /// resumed from its tokens.
    fn preempt_youngest(&mut self) {
        let mut seq = self.active.pop().expect("at least two sequences are active");
        self.pool.close(seq.id);
        seq.to_restore = seq.tokens.len().div_ceil(KV_BLOCK_SIZE);
        self.enqueue(seq);
    }
}

/// Tokens of a sequence whose K and V are not in the cache.
fn pending(pool: &dyn KvPool, seq: &Sequence) -> usize {
    seq.tokens.len() - pool.len(seq.id) as usize
}
