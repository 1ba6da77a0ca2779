//! One step of the engine: schedule, draft, one forward pass over the batch, sample, verify, append
//! the drafter's context, commit and emit.

use std::ops::Range;
use std::time::Duration;

use super::core::EngineCore;
use super::pictures::Pictures;
use super::sequence::Sequence;
use crate::Result;
use crate::contract::{
    Anchor, Backend, BatchEntry, BatchInput, BlockTable, ContextSlice, KV_BLOCK_SIZE, KvPool,
    LogitsRequest, SampleRow, SeqSlice, recycle,
};

impl<B: Backend> EngineCore<B> {
    /// Runs one step for all sequences. Returns whether any is left.
    ///
    /// # Errors
    /// When the device fails: every request was ended with the error, and the engine must not be
    /// used again.
    pub fn step(&mut self, now: &dyn Fn() -> Duration) -> Result<bool> {
        if let Err(error) = self.try_step(now) {
            for seq in self.active.iter() {
                self.pool.close(seq.id);
            }
            self.fail(&error, now());
            return Err(error);
        }
        Ok(!(self.waiting.is_empty() && self.active.is_empty()))
    }

    fn try_step(&mut self, now: &dyn Fn() -> Duration) -> Result<()> {
        self.reap_finished(now());
        self.encode(now)?;
        self.admit(now())?;
        self.plan();
        self.reserve(now())?;
        self.move_blocks()?;
        self.complete_context()?;
        let began = now();
        self.draft()?;
        let drafted = now();
        if self.active.iter().all(|seq| seq.num_tokens == 0) {
            self.end_active(now());
            return Ok(());
        }
        self.forward()?;
        self.sample()?;
        self.verify(now());
        self.append_context()?;
        let done = now();
        let (draft, pass) = (drafted.saturating_sub(began), done.saturating_sub(drafted));
        self.speculation.learn(&mut self.active, draft, pass);
        self.commit(done);
        Ok(())
    }

    /// Offloads the blocks that were evicted in this step and makes the copies that it needs.
    fn move_blocks(&mut self) -> Result<()> {
        if let Some(offload) = &mut self.offload {
            offload.save_evicted(self.pool.as_mut(), &self.models)?;
        }
        if !self.copies.is_empty() {
            self.models.copy_blocks(&self.copies)?;
            self.copies.clear();
        }
        Ok(())
    }

    /// Appends what sequences deferred that are about to draft.
    fn complete_context(&mut self) -> Result<()> {
        let mut drafting = self.active.iter().filter(|seq| seq.draft_budget > 0);
        if drafting.any(|seq| self.deferred.contains(seq.id)) {
            self.append_deferred()?;
        }
        Ok(())
    }

    fn append_deferred(&mut self) -> Result<()> {
        self.deferred.append(&mut self.models, &*self.pool, &mut self.buffers.context)
    }

    /// Appends draft tokens to the sequences that have a budget for them, and writes the token
    /// masks of the step.
    fn draft(&mut self) -> Result<()> {
        self.run_drafter()?;
        for seq in &mut self.active {
            if seq.draft_budget > 0 {
                if let Err(error) = seq.constrain_draft() {
                    seq.abort(error);
                } else {
                    seq.num_tokens = 1 + seq.drafts;
                }
            }
        }
        let mut used = 0;
        for seq in &mut self.active {
            if needs_logits(&*self.pool, seq)
                && let Err(error) =
                    seq.fill_masks(&mut self.buffers.masks, &mut used, self.limits.vocab)
            {
                seq.abort(error);
            }
        }
        Ok(())
    }

    fn run_drafter(&mut self) -> Result<()> {
        let Some(drafter) = &mut self.models.drafter else { return Ok(()) };
        let mut anchors: Vec<Anchor<'_>> = recycle(std::mem::take(&mut self.buffers.anchors));
        anchors.extend(self.active.iter().filter(|seq| seq.draft_budget > 0).map(|seq| {
            let start = self.pool.len(seq.id);
            let slice = SeqSlice { start, len: 1, blocks: self.pool.block_table(seq.id) };
            Anchor { slice, token: seq.tokens[start as usize], max: seq.draft_budget }
        }));
        let drafts = &mut self.buffers.drafts;
        if drafts.len() < anchors.len() {
            drafts.resize(anchors.len(), Vec::new());
        }
        if !anchors.is_empty() {
            drafter.draft(&anchors, &*self.models.target, &mut drafts[..anchors.len()])?;
        }
        self.buffers.anchors = recycle(anchors);
        let drafting = self.active.iter_mut().filter(|seq| seq.draft_budget > 0);
        for (seq, drafts) in drafting.zip(drafts) {
            let mut drafts = drafts.as_slice();
            if seq.adaptive {
                let worth = seq.draft_stats.cut(drafts.iter().map(|draft| draft.confidence));
                drafts = &drafts[..worth];
            }
            seq.append_draft(drafts.iter().map(|draft| draft.token));
        }
        Ok(())
    }

    fn forward(&mut self) -> Result<()> {
        let mut batch: Vec<BatchEntry<'_, B>> = recycle(std::mem::take(&mut self.buffers.batch));
        for seq in self.active.iter().filter(|seq| seq.num_tokens > 0) {
            let start = self.pool.len(seq.id) as usize;
            let logits = match needs_logits(&*self.pool, seq) {
                false => LogitsRequest::None,
                true if seq.drafts > 0 => LogitsRequest::All,
                true => LogitsRequest::Last,
            };
            let blocks = self.pool.block_table(seq.id);
            let positions = start..start + seq.num_tokens;
            push_entries(&mut batch, seq, positions, blocks, &self.pictures, logits);
        }
        self.models.target.forward(&batch)?;
        self.buffers.batch = recycle(batch);
        Ok(())
    }

    /// Samples a token for every row of logits: what follows each draft token and the last one.
    fn sample(&mut self) -> Result<()> {
        let buffers = &mut self.buffers;
        let mut rows: Vec<SampleRow<'_>> = recycle(std::mem::take(&mut buffers.sample_rows));
        for seq in self.active.iter().filter(|seq| needs_logits(&*self.pool, seq)) {
            let first = seq.tokens.len() - seq.drafts;
            for i in 0..=seq.drafts {
                rows.push(SampleRow {
                    row: rows.len(),
                    sampling: &seq.sampling,
                    history: &seq.history,
                    drafted: &seq.tokens[first..first + i],
                    mask: (i < seq.num_masks).then(|| &buffers.masks[seq.first_mask + i]),
                    position: (first + i) as u32,
                    logprobs: seq.logprobs,
                });
            }
        }
        buffers.sampled.clear();
        if !rows.is_empty() {
            self.backend.sample(self.models.target.logits(), &rows, &mut buffers.sampled)?;
        }
        assert_eq!(buffers.sampled.len(), rows.len(), "a token is sampled for every row");
        buffers.sample_rows = recycle(rows);
        Ok(())
    }

    /// Verifies draft tokens against the sampled ones: decides which tokens of the step stay.
    fn verify(&mut self, now: Duration) {
        let mut sampled = self.buffers.sampled.drain(..);
        for seq in self.active.iter_mut().filter(|seq| seq.num_tokens > 0) {
            if needs_logits(&*self.pool, seq) {
                seq.verify(sampled.by_ref().take(seq.drafts + 1), now);
            } else {
                seq.kept = seq.num_tokens;
            }
        }
    }

    /// Appends the tokens that stay to the drafter's context, or defers them while nobody drafts.
    /// Before they are committed, which may free window blocks that hold the first of them.
    fn append_context(&mut self) -> Result<()> {
        if self.models.drafter.is_none() {
            return Ok(());
        }
        let rows =
            self.active.iter().map(|seq| if seq.num_tokens > 0 { seq.kept } else { 0 }).sum();
        let must_append = self.active.iter().any(|seq| needs_context(&*self.pool, seq));
        let fits = self.deferred.fits(rows);
        if !fits {
            self.append_deferred()?;
        }
        let mut context: Vec<ContextSlice<'_>> = recycle(std::mem::take(&mut self.buffers.context));
        let mut first_row = 0;
        for seq in self.active.iter().filter(|seq| seq.num_tokens > 0) {
            let start = self.pool.len(seq.id);
            let slice = SeqSlice { start, len: seq.kept, blocks: self.pool.block_table(seq.id) };
            context.push(ContextSlice { slice, first_row });
            first_row += seq.num_tokens;
        }
        let captured_hidden = self.models.target.captured_hidden();
        // Rows that join deferred ones are appended with them: one append for all.
        let defer = fits && !(must_append && self.deferred.is_empty());
        if defer {
            let seqs = self.active.iter().filter(|seq| seq.num_tokens > 0).map(|seq| seq.id);
            self.deferred.push(&*self.backend, seqs, &context, captured_hidden)?;
        } else if let Some(drafter) = &mut self.models.drafter {
            drafter.append_context(&context, captured_hidden)?;
        }
        self.buffers.context = recycle(context);
        if defer && must_append { self.append_deferred() } else { Ok(()) }
    }

    /// Commits the tokens that stay, emits events and ends the finished sequences.
    fn commit(&mut self, now: Duration) {
        for seq in &mut self.active {
            if seq.num_tokens > 0 {
                let len = self.pool.len(seq.id) as usize;
                seq.keys(len..len + seq.kept, &mut self.buffers.keys);
                self.pool.commit(seq.id, &self.buffers.keys);
                if seq.pictures.last().is_some_and(|last| last.positions.end <= len + seq.kept) {
                    self.pictures.release(seq.id);
                }
                seq.report_prefill((len + seq.kept) as u32);
                seq.emit();
            }
            self.pool.truncate(seq.id, self.pool.len(seq.id));
        }
        self.end_active(now);
    }
}

/// Appends the batch entries of a sequence at `positions`: one for each part of its text and one for
/// each of its pictures there. Logits are those of the last part.
fn push_entries<'a, B: Backend>(
    batch: &mut Vec<BatchEntry<'a, B>>,
    seq: &'a Sequence,
    positions: Range<usize>,
    blocks: BlockTable<'a>,
    pictures: &'a Pictures<B>,
    logits: LogitsRequest,
) {
    let entry = |range: &Range<usize>, input, logits| {
        let slice = SeqSlice { start: range.start as u32, len: range.len(), blocks };
        BatchEntry { slice, input, logits }
    };
    let mut start = positions.start;
    for (index, picture) in seq.pictures.iter().enumerate() {
        let rows = picture.positions.start.max(start)..picture.positions.end.min(positions.end);
        if rows.is_empty() {
            continue;
        }
        let text = start..rows.start;
        if !text.is_empty() {
            let input = BatchInput::Tokens(&seq.tokens[text.clone()]);
            batch.push(entry(&text, input, LogitsRequest::None));
        }
        let first_row = rows.start - picture.positions.start;
        let input = BatchInput::Embeds { buf: pictures.rows(seq.id, index), first_row };
        let is_last = rows.end == positions.end;
        batch.push(entry(&rows, input, if is_last { logits } else { LogitsRequest::None }));
        start = rows.end;
    }
    let text = start..positions.end;
    if !text.is_empty() {
        batch.push(entry(&text, BatchInput::Tokens(&seq.tokens[text.clone()]), logits));
    }
}

/// Whether the step runs the last token of a sequence: then the next one is sampled.
fn needs_logits(pool: &dyn KvPool, seq: &Sequence) -> bool {
    seq.num_tokens > 0 && pool.len(seq.id) as usize + seq.num_tokens == seq.tokens.len()
}

/// Whether the drafter's context must be complete behind this step: the sequence drafts, ends, or
/// completes a KV block, which others may share from now on.
fn needs_context(pool: &dyn KvPool, seq: &Sequence) -> bool {
    let len = pool.len(seq.id) as usize;
    let completes_block = len / KV_BLOCK_SIZE < (len + seq.kept) / KV_BLOCK_SIZE;
    seq.num_tokens > 0 && (seq.draft_budget > 0 || seq.finish.is_some() || completes_block)
}
