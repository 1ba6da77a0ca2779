//! Who runs in a step and with how many rows: endings first, then admission by pages, then rows,
//! then the pages for them. Under pressure guesses go first, the youngest sequence next.

use std::time::Duration;

use super::seq::Seq;
use super::speculation::Base;
use super::step::Loop;
use crate::contract::{Backend, FinishReason, PAGE_TOKENS, PageCount, PageKey, SeqId};
use crate::{Error, Result};

/// Saved pages that are loaded in a step, so that those who run are not kept waiting.
const MOST_LOADS: usize = 16;

impl<B: Backend> Loop<B> {
    /// Ends what was cancelled, failed or is past its deadline, wherever it stands.
    pub(super) fn sweep(&mut self, now: Duration) {
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
    /// pages are still loaded, some in a step, is overtaken.
    pub(super) fn admit(&mut self, now: Duration) -> Result<()> {
        let (mut first, mut loads) = (0, MOST_LOADS);
        while self.active.len() < self.limits.max_active && first < self.waiting.len() {
            let seq = &self.waiting[first];
            self.keys.clear();
            self.keys.extend(seq.tokens.iter().map(|&token| PageKey::Token(token)));
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
            let chunk = (seq.tokens.len() - cached as usize).min(self.chunk_rows);
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

    /// Whether every active sequence can have the pages of its next step at the same time.
    fn others_fit(&self) -> bool {
        let mut need = PageCount::default();
        for seq in &self.active {
            let table = self.pool.pages(seq.id);
            let end = seq.tokens.len().min(self.pool.len(seq.id) as usize + self.chunk_rows);
            let pages = end.div_ceil(PAGE_TOKENS);
            need.full += pages.saturating_sub(table.full.len());
            let base = table.window_base as usize / PAGE_TOKENS;
            need.window += pages.saturating_sub(base + table.window.len());
        }
        let free = self.pool.free();
        need.full <= free.full && need.window <= free.window
    }

    /// Gives everyone a row, then shares out what is left: first for guesses, then for prompts.
    pub(super) fn plan(&mut self) {
        let count = self.active.len();
        let pending = |seq: &Seq, len: u32| seq.tokens.len() - len as usize;
        let (mut prompts, mut prompt_rows) = (0, 0);
        for seq in &mut self.active {
            (seq.rows, seq.verified, seq.agreed) = (1, 0, 0);
            let wanted = seq.guess_room().min(self.limits.draft);
            let can = self.drafter.is_some() || seq.constraint.is_some();
            let more = pending(seq, self.pool.len(seq.id)) - 1;
            seq.room = if can && more == 0 { wanted } else { 0 };
            prompts += usize::from(more > 0);
            prompt_rows += more;
        }
        let mut left = self.limits.step_rows - count;
        let most = if prompts < count { self.mixed(count, left) } else { left };
        // Prompts keep at least half: guesses must not hold them up.
        let guesses = if prompts > 0 { left / 2 } else { left };
        let guesses = guesses.min(self.limits.score_rows - count);
        let rows = count + prompt_rows.min(most);
        left -= self.plan_guesses(guesses, Base { rows, choosing: count - prompts, blocks: 0 });
        let mut rows = left.min(most);
        for seq in &mut self.active {
            let pending = pending(seq, self.pool.len(seq.id));
            if pending > 1 {
                let more = (rows / prompts).min(pending.min(self.chunk_rows) - 1);
                seq.rows += more;
                rows -= more;
                prompts -= 1;
            }
        }
    }

    /// Prompt rows of a step in which `count` sequences have a row anyway and some decode.
    fn mixed(&self, count: usize, left: usize) -> usize {
        let most = left.min(self.mixed_rows);
        match self.token_gap {
            Some(gap) => self.speculation.rows_within(count, most, gap),
            None => most,
        }
    }

    /// Shares up to `budget` guesses out: evenly where the length is asked for, by what pays where
    /// it is not. Returns how many were given.
    fn plan_guesses(&mut self, budget: usize, mut base: Base) -> usize {
        let mut left = budget;
        let mut guessers = self.active.iter().filter(|seq| seq.room > 0).count();
        for seq in self.active.iter_mut().filter(|seq| seq.room > 0 && !seq.adapts) {
            seq.room = seq.room.min(left / guessers);
            left -= seq.room;
            guessers -= 1;
            base.rows += seq.room;
            base.blocks += usize::from(seq.room > 0);
        }
        self.speculation.share_out(&mut self.active, base, left);
        self.active.iter().map(|seq| seq.room).sum()
    }

    /// Makes the planned rows writable, the oldest first.
    pub(super) fn reserve(&mut self, now: Duration) -> Result<()> {
        let mut i = 0;
        while i < self.active.len() {
            let alone = self.active.len() == 1;
            let seq = &mut self.active[i];
            let block = match &self.drafter {
                Some(drafter) if seq.room > 0 => drafter.width().max(seq.room),
                _ => seq.room,
            };
            let end = self.pool.len(seq.id) + (seq.rows + block) as u32;
            match self.pool.reserve(seq.id, end, &mut self.copies) {
                Ok(()) => i += 1,
                Err(Error::Exhausted(_)) if seq.room > 0 => seq.room = 0,
                Err(error @ Error::Exhausted(_)) if alone => {
                    seq.finish = Some(FinishReason::Failed(error));
                    self.end_active(now);
                }
                Err(Error::Exhausted(_)) => self.send_back_youngest(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The youngest waits again, to be resumed from its tokens.
    fn send_back_youngest(&mut self) {
        let mut seq = self.active.pop().expect("there are several");
        self.pool.close(seq.id);
        seq.to_restore = seq.tokens.len().div_ceil(PAGE_TOKENS);
        self.enqueue(seq);
    }

    /// Adds to the waiting, best first.
    pub(super) fn enqueue(&mut self, seq: Seq) {
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
