//! Who runs in a step and with how many rows: endings first, then admission by KV blocks, then rows,
//! then the KV blocks for them. Under pressure drafts go first, the youngest sequence next.

use std::time::Duration;

use super::seq::Sequence;
use super::speculation::Base;
use super::step::EngineCore;
use crate::contract::{Backend, BlockCount, FinishReason, KV_BLOCK_SIZE, PositionKey, SeqId};
use crate::{Error, Result};

/// Saved KV blocks that are loaded in a step, so that those who run are not kept waiting.
const MAX_LOADS: usize = 16;

impl<B: Backend> EngineCore<B> {
    /// Ends what was cancelled, failed or is past its deadline, wherever it stands.
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

    /// Ends the active sequences that are to end.
    pub(super) fn end_active(&mut self, now: Duration) {
        while let Some(i) = self.active.iter().position(|seq| seq.finish.is_some()) {
            let seq = self.active.remove(i);
            self.pool.close(seq.id);
            seq.end(now);
        }
    }

    /// Starts waiting sequences, best first, as long as the next step of everybody fits. None
    /// overtakes one that does not fit, so that the large are not starved by the small; one whose
    /// KV blocks are still loaded, some in a step, is overtaken.
    pub(super) fn admit(&mut self, now: Duration) -> Result<()> {
        let (mut first, mut loads) = (0, MAX_LOADS);
        while self.active.len() < self.limits.max_num_seqs && first < self.waiting.len() {
            let seq = &self.waiting[first];
            self.keys.clear();
            self.keys.extend(seq.tokens.iter().map(|&token| PositionKey::Token(token)));
            let left = seq.to_restore;
            if left > 0 {
                // Half of what the step has left, so that those behind may look as well.
                let some = left.min(loads.div_ceil(2));
                loads -= some;
                let left = self.restore(left, some)?;
                self.waiting[first].to_restore = left;
                if left > 0 {
                    first += 1;
                    continue;
                }
            }
            let seq = &self.waiting[first];
            let cached = self.pool.open(seq.id, &self.keys)?;
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

    /// Whether every active sequence can have the KV blocks of its next step at the same time.
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

    /// Gives everyone a row, then shares out what is left: first for drafts, then for prompts.
    pub(super) fn plan(&mut self) {
        let count = self.active.len();
        let pending = |seq: &Sequence, len: u32| seq.tokens.len() - len as usize;
        let (mut prompts, mut prompt_rows) = (0, 0);
        for seq in &mut self.active {
            (seq.num_tokens, seq.verified, seq.accepted) = (1, 0, 0);
            let wanted = seq.max_draft_tokens().min(self.limits.draft);
            let can = self.drafter.is_some() || seq.constraint.is_some();
            let more = pending(seq, self.pool.len(seq.id)) - 1;
            seq.draft_budget = if can && more == 0 { wanted } else { 0 };
            prompts += usize::from(more > 0);
            prompt_rows += more;
        }
        let mut left = self.limits.max_num_batched_tokens - count;
        let most = if prompts < count { self.mixed(count, left) } else { left };
        // Prompts keep at least half: drafts must not hold them up.
        let drafts = if prompts > 0 { left / 2 } else { left };
        let drafts = drafts.min(self.limits.max_logits_rows - count);
        let rows = count + prompt_rows.min(most);
        left -= self.plan_drafts(drafts, Base { rows, choosing: count - prompts, blocks: 0 });
        let mut rows = left.min(most);
        for seq in &mut self.active {
            let pending = pending(seq, self.pool.len(seq.id));
            if pending > 1 {
                let more = (rows / prompts).min(pending.min(self.prefill_chunk) - 1);
                seq.num_tokens += more;
                rows -= more;
                prompts -= 1;
            }
        }
    }

    /// Prompt rows of a step in which `count` sequences have a row anyway and some decode.
    fn mixed(&self, count: usize, left: usize) -> usize {
        let most = left.min(self.mixed_prefill_tokens);
        match self.target_itl {
            Some(gap) => self.speculation.rows_within(count, most, gap),
            None => most,
        }
    }

    /// Shares up to `budget` drafts out: evenly where the length is asked for, by what pays where
    /// it is not. Returns how many were given.
    fn plan_drafts(&mut self, budget: usize, mut base: Base) -> usize {
        let mut left = budget;
        let mut guessers = self.active.iter().filter(|seq| seq.draft_budget > 0).count();
        for seq in self.active.iter_mut().filter(|seq| seq.draft_budget > 0 && !seq.adapts) {
            seq.draft_budget = seq.draft_budget.min(left / guessers);
            left -= seq.draft_budget;
            guessers -= 1;
            base.rows += seq.draft_budget;
            base.blocks += usize::from(seq.draft_budget > 0);
        }
        self.speculation.share_out(&mut self.active, base, left);
        self.active.iter().map(|seq| seq.draft_budget).sum()
    }

    /// Makes the planned rows writable, the oldest first.
    pub(super) fn reserve(&mut self, now: Duration) -> Result<()> {
        let mut i = 0;
        while i < self.active.len() {
            let alone = self.active.len() == 1;
            let seq = &mut self.active[i];
            let block = match &self.drafter {
                Some(drafter) if seq.draft_budget > 0 => drafter.width().max(seq.draft_budget),
                _ => seq.draft_budget,
            };
            let end = self.pool.len(seq.id) + (seq.num_tokens + block) as u32;
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

    /// The youngest waits again, to be resumed from its tokens.
    fn preempt_youngest(&mut self) {
        let mut seq = self.active.pop().expect("there are several");
        self.pool.close(seq.id);
        seq.to_restore = seq.tokens.len().div_ceil(KV_BLOCK_SIZE);
        self.enqueue(seq);
    }

    /// Adds to the waiting, best first.
    pub(super) fn enqueue(&mut self, seq: Sequence) {
        let at = self.waiting.partition_point(|other| other.rank() < seq.rank());
        self.waiting.insert(at, seq);
    }

    /// Ends a sequence at the next step. Unknown and ended ids are ignored.
    pub fn cancel(&mut self, id: SeqId) {
        let mut all = self.waiting.iter_mut().chain(&mut self.active);
        if let Some(seq) = all.find(|seq| seq.id == id) {
            seq.finish.get_or_insert(FinishReason::Cancelled);
        }
    }

    /// Ends every sequence at the next step.
    pub fn cancel_all(&mut self) {
        for seq in self.waiting.iter_mut().chain(&mut self.active) {
            seq.finish.get_or_insert(FinishReason::Cancelled);
        }
    }
}
