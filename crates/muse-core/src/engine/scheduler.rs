//! The scheduler: which sequences run in a step, with how many tokens, in which KV blocks. First
//! finished sequences leave, then waiting ones are admitted, then tokens are planned, then their KV
//! blocks are reserved. When blocks are short draft tokens go first, the last-ranked sequence next.
//!
//! Sequence slots are shared evenly among groups of requests, and the first prompts of all groups
//! run before second ones, so that many choices of one request do not hold up another client.
//! Priorities count as waiting time, up to a bound.

use std::time::Duration;

use super::core::EngineCore;
use super::sequence::{Group, Sequence};
use super::speculation::StepBase;
use crate::contract::{Backend, BlockCount, FinishReason, KV_BLOCK_SIZE, KvPool, SeqId};
use crate::{Error, Result};

/// Offloaded KV blocks that are loaded in a step, so that running sequences are not held up.
const MAX_LOADS: usize = 16;
/// Nanoseconds by which each active sequence of a group puts off the admission of its next one.
const GROUP_PENALTY_NANOS: i64 = 30_000_000_000;
/// Pictures of other waiting sequences, encoded or not, beside which one begins with its own. Bounds
/// the memory of their rows.
const MAX_HELD_PICTURES: usize = 8;
/// Time of a slice of a picture where no inter-token target bounds it: how late a cancellation is
/// noticed.
const UNBOUNDED_ENCODE_TIME: Duration = Duration::from_millis(500);

impl<B: Backend> EngineCore<B> {
    /// Ends the sequences that were cancelled, failed or are past their deadline.
    pub(super) fn reap_finished(&mut self, now: Duration) {
        for seq in self.waiting.iter_mut().chain(&mut self.active) {
            if seq.finish.is_none() && seq.deadline.is_some_and(|deadline| now >= deadline) {
                seq.finish = Some(FinishReason::Deadline);
            }
        }
        while let Some(i) = self.waiting.iter().position(|seq| seq.finish.is_some()) {
            let seq = self.waiting.remove(i);
            self.pictures.release(seq.id);
            seq.end(now);
        }
        self.end_active(now);
    }

    /// Ends the active sequences that have a finish reason.
    pub(super) fn end_active(&mut self, now: Duration) {
        let before = self.active.len();
        while let Some(i) = self.active.iter().position(|seq| seq.finish.is_some()) {
            let seq = self.active.remove(i);
            self.close(seq.id);
            seq.end(now);
        }
        if self.active.len() < before {
            self.rank_active();
        }
    }

    /// Sorts the active sequences by rank.
    fn rank_active(&mut self) {
        self.active.sort_unstable_by_key(|seq| (seq.arrival, seq.id));
        for i in 0..self.active.len() {
            self.active[i].group_index = count(&self.active[..i], self.active[i].group);
        }
        self.active.sort_unstable_by_key(Sequence::rank);
    }

    /// The waiting sequence to admit next: the one that waited longest, where its priority counts
    /// as more waiting time and active sequences of its group as less. With `by_preemption` only
    /// among those that another may be preempted for.
    fn next_waiting(&self, by_preemption: bool) -> Option<usize> {
        let admission_key = |seq: &Sequence| {
            let active = count(&self.active, seq.group) as i64;
            (seq.arrival + active * GROUP_PENALTY_NANOS, seq.id)
        };
        let may = |seq: &Sequence| {
            !seq.preparing && (!by_preemption || self.can_preempt(count(&self.active, seq.group)))
        };
        let candidates = (0..self.waiting.len()).filter(|&i| may(&self.waiting[i]));
        candidates.min_by_key(|&i| admission_key(&self.waiting[i]))
    }

    /// Starts waiting sequences while there are slots and the next step of all active ones fits into
    /// the KV blocks. None overtakes one that does not fit, so that small requests do not starve
    /// large ones; a sequence whose offloaded blocks are still being loaded or whose pictures are
    /// being encoded is overtaken.
    ///
    /// When slots or blocks are short, a sequence of a group with fewer active ones preempts one
    /// of a group with more.
    pub(super) fn admit(&mut self, now: Duration) -> Result<()> {
        self.waiting.iter_mut().for_each(|seq| seq.preparing = false);
        let (mut loads, mut blocked) = (MAX_LOADS, false);
        loop {
            let full = self.active.len() == self.limits.max_num_seqs;
            let Some(i) = self.next_waiting(full || blocked) else { return Ok(()) };
            if self.restore(i, &mut loads)? || !self.prepare_pictures(i)? {
                self.waiting[i].preparing = true;
                continue;
            }
            let index = count(&self.active, self.waiting[i].group);
            if full {
                self.preempt_last();
            }
            while !self.start(i, now)? {
                if !self.can_preempt(index) {
                    blocked = true;
                    break;
                }
                self.preempt_last();
            }
        }
    }

    /// Makes a waiting sequence active, or ends it with an error when it has the pool to itself and
    /// still does not fit. Returns false when KV blocks are short.
    fn start(&mut self, i: usize, now: Duration) -> Result<bool> {
        let (seq, keys) = (&self.waiting[i], &mut self.buffers.keys);
        seq.keys(0..seq.tokens.len(), keys);
        let cached = self.pool.open(seq.id, keys)?;
        // Cached rows of a picture may have been evicted since they were looked for.
        if !matches!(self.pictures.begin(seq, cached as usize), Ok(true)) {
            self.pool.close(seq.id);
            self.waiting[i].preparing = true;
            return Ok(true);
        }
        let chunk = (seq.tokens.len() - cached as usize).min(self.prefill_chunk);
        match self.pool.reserve(seq.id, cached + chunk as u32, &mut self.copies) {
            Ok(()) if self.active.is_empty() || self.others_fit() => {
                let mut seq = self.waiting.remove(i);
                seq.start(cached, now);
                self.active.push(seq);
                self.rank_active();
                Ok(true)
            }
            Err(error) if self.active.is_empty() => {
                self.pool.close(seq.id);
                self.pictures.release(seq.id);
                let mut seq = self.waiting.remove(i);
                seq.finish = Some(FinishReason::Failed(error));
                seq.end(now);
                Ok(true)
            }
            Ok(()) | Err(Error::Exhausted(_)) => {
                self.pool.close(seq.id);
                Ok(false)
            }
            Err(error) => Err(error),
        }
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

    /// Begins to encode the pictures that a waiting sequence has to run. Returns whether it has all
    /// of them. One whose picture is not taken ends with the next step.
    fn prepare_pictures(&mut self, waiting: usize) -> Result<bool> {
        let seq = &mut self.waiting[waiting];
        if seq.pictures.is_empty() {
            return Ok(true);
        }
        let busy = self.pictures.held_by_others(seq.id) >= MAX_HELD_PICTURES;
        if busy || seq.finish.is_some() || self.pictures.is_encoding(seq.id) {
            return Ok(false);
        }
        let keys = &mut self.buffers.keys;
        seq.keys(0..seq.tokens.len(), keys);
        let cached = self.pool.open(seq.id, keys)?;
        self.pool.close(seq.id);
        self.pictures.begin(seq, cached as usize).or_else(|error| {
            seq.finish = Some(FinishReason::Failed(error));
            Ok(false)
        })
    }

    /// Encodes a slice of a picture, in the time that a step leaves within the inter-token target.
    pub(super) fn encode(&mut self, now: &dyn Fn() -> Duration) -> Result<()> {
        self.encode_time = Duration::ZERO;
        if self.pictures.is_idle() {
            return Ok(());
        }
        let decode = self.speculation.decode_time(self.active.len());
        let target = self.target_itl.time(decode).unwrap_or(UNBOUNDED_ENCODE_TIME);
        let prefilling = self.active.iter().any(|seq| pending(&*self.pool, seq) > 1);
        // Beside prompts the time is shared with them.
        let shares = if prefilling { 2 } else { 1 };
        let began = now();
        let failed = self.pictures.advance(target.saturating_sub(decode) / shares, now)?;
        self.encode_time = now().saturating_sub(began);
        if let Some((id, error)) = failed {
            let mut all = self.waiting.iter_mut().chain(&mut self.active);
            if let Some(seq) = all.find(|seq| seq.id == id) {
                seq.finish.get_or_insert(FinishReason::Failed(error));
            }
        }
        Ok(())
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
        let mixed = 0 < prefilling && prefilling < count;
        let max_prefill = if mixed { self.mixed_prefill(count, left) } else { left };
        // Prompts keep at least half: draft tokens must not hold them up.
        let drafts = if prefilling > 0 { left / 2 } else { left };
        let drafts = drafts.min(self.limits.max_logits_rows - count);
        let tokens = count + prompt_tokens.min(max_prefill);
        let base = StepBase { tokens, sampling: count - prefilling, draft_blocks: 0 };
        left -= self.plan_drafts(drafts, base);
        if prefilling > 0 {
            self.plan_prefill(left.min(max_prefill));
        }
    }

    /// Gives `budget` prompt tokens to one sequence after the other, in the order of
    /// [`EngineCore::prefill_key`].
    fn plan_prefill(&mut self, mut budget: usize) {
        let mut order = std::mem::take(&mut self.buffers.prefill_order);
        order.clear();
        order.extend((0..self.active.len()).filter(|&i| pending(&*self.pool, &self.active[i]) > 1));
        let token_time = self.speculation.prefill_token_time(self.limits.max_num_batched_tokens);
        order.sort_unstable_by_key(|&i| self.prefill_key(&self.active[i], token_time));
        for &i in &order {
            let more = pending(&*self.pool, &self.active[i]).min(self.prefill_chunk) - 1;
            self.active[i].num_tokens += more.min(budget);
            budget -= more.min(budget);
        }
        self.buffers.prefill_order = order;
    }

    /// Prompts that arrive together run one after the other, shorter ones first: then the mean time
    /// to the first token is least. The time that a prompt takes counts like a later arrival, so
    /// that shorter ones overtake a long one for no longer than it takes itself. The first
    /// sequences of all groups come before the second ones.
    fn prefill_key(&self, seq: &Sequence, token_time: f64) -> (usize, i64, SeqId) {
        let nanos = pending(&*self.pool, seq) as f64 * token_time * 1e9;
        (seq.group_index, seq.arrival + nanos as i64, seq.id)
    }

    /// The most prompt tokens of a step in which `count` sequences have a token each and some
    /// decode.
    fn mixed_prefill(&self, count: usize, left: usize) -> usize {
        let max = left.min(self.mixed_prefill_tokens);
        match self.target_itl.time(self.speculation.decode_time(count)) {
            Some(time) => {
                let time = time.saturating_sub(self.encode_time);
                self.speculation.tokens_within(count, max, time)
            }
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
                Err(Error::Exhausted(_)) => self.preempt_last(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether the last-ranked sequence may be preempted for one that would have `index` in its
    /// group: then the group that loses one keeps at least as many active sequences as the other
    /// gets, so that neither preempts the other in turn.
    fn can_preempt(&self, index: usize) -> bool {
        self.active.last().is_some_and(|last| last.group_index > index)
    }

    /// Frees the KV blocks of a sequence. Positions that its drafter context lacks are not kept for
    /// later prompts.
    fn close(&mut self, id: SeqId) {
        self.pictures.release(id);
        if let Some(first) = self.deferred.forget(id) {
            self.pool.truncate(id, first);
        }
        self.pool.close(id);
    }

    /// Frees the KV blocks of the last-ranked active sequence. It waits again and will be resumed
    /// from its tokens.
    fn preempt_last(&mut self) {
        let mut seq = self.active.pop().expect("at least two sequences are active");
        self.close(seq.id);
        seq.to_restore = seq.tokens.len().div_ceil(KV_BLOCK_SIZE);
        self.waiting.push(seq);
    }
}

/// How many of `seqs` belong to `group`.
fn count(seqs: &[Sequence], group: Group) -> usize {
    seqs.iter().filter(|seq| seq.group == group).count()
}

/// Tokens of a sequence whose K and V are not in the cache.
fn pending(pool: &dyn KvPool, seq: &Sequence) -> usize {
    seq.tokens.len() - pool.len(seq.id) as usize
}
