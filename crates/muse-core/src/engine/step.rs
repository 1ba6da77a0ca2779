//! One step: draft, run everybody's rows in one pass, choose, keep what agrees, hand it out.

use std::sync::Arc;
use std::time::Duration;

use super::offload::OffloadState;
use super::seq::Sequence;
use super::speculation::Speculation;
use super::{EngineOptions, Limits};
use crate::contract::{
    Anchor, Backend, BatchEntry, BatchInput, BlockCopy, ContextSlice, DraftToken, Drafter,
    FinishReason, KvPool, LogitsRequest, PositionKey, Request, SampleRow, Sampled, SeqId, SeqSlice,
    Sink, TargetModel, TokenMask, recycle,
};
use crate::{Error, Result};

/// The engine without its thread: requests go in, `step` calls their sinks.
///
/// `now` is whatever clock the caller has; deadlines and timings are read from it alone.
pub struct EngineCore<B: Backend> {
    backend: Arc<B>,
    pub(super) target: Box<dyn TargetModel<B>>,
    pub(super) drafter: Option<Box<dyn Drafter<B>>>,
    pub(super) pool: Box<dyn KvPool>,
    pub(super) limits: Limits,
    pub(super) prefill_chunk: usize,
    pub(super) mixed_prefill_tokens: usize,
    pub(super) target_itl: Option<Duration>,
    adapt_draft: bool,
    pub(super) speculation: Speculation,
    pub(super) offload: Option<OffloadState>,
    /// Best first, as `active` is.
    pub(super) waiting: Vec<Sequence>,
    pub(super) active: Vec<Sequence>,
    pub(super) keys: Vec<PositionKey>,
    pub(super) copies: Vec<BlockCopy>,
    drafts: Vec<Vec<DraftToken>>,
    masks: Vec<TokenMask>,
    sampled: Vec<Sampled>,
    anchors: Vec<Anchor<'static>>,
    batch: Vec<BatchEntry<'static, B>>,
    sample_rows: Vec<SampleRow<'static>>,
    kept: Vec<ContextSlice<'static>>,
}

impl<B: Backend> EngineCore<B> {
    /// Joins the parts, as [`super::spawn`] wants them.
    ///
    /// # Errors
    /// [`Error::Invalid`] when they cannot work together.
    pub fn new(
        backend: Arc<B>,
        target: Box<dyn TargetModel<B>>,
        drafter: Option<Box<dyn Drafter<B>>>,
        pool: Box<dyn KvPool>,
        options: &EngineOptions,
    ) -> Result<Self> {
        let limits = Limits::new(target.as_ref(), drafter.as_deref(), pool.as_ref(), options)?;
        Ok(Self::join(backend, target, drafter, pool, options, limits))
    }

    /// Joins parts that were found to fit.
    pub(super) fn join(
        backend: Arc<B>,
        target: Box<dyn TargetModel<B>>,
        drafter: Option<Box<dyn Drafter<B>>>,
        pool: Box<dyn KvPool>,
        options: &EngineOptions,
        limits: Limits,
    ) -> Self {
        Self {
            backend,
            target,
            drafter,
            pool,
            // Reserving more than a pass holds could ask for more than a lone sequence can have.
            prefill_chunk: options.prefill_chunk.min(limits.max_num_batched_tokens),
            adapt_draft: options.adapt_draft,
            speculation: Speculation::new(limits.draft),
            offload: options.kv_offload.clone().map(OffloadState::new),
            limits,
            mixed_prefill_tokens: options.mixed_prefill_tokens,
            target_itl: options.target_itl,
            waiting: Vec::new(),
            active: Vec::new(),
            keys: Vec::new(),
            copies: Vec::new(),
            drafts: Vec::new(),
            masks: Vec::new(),
            sampled: Vec::new(),
            anchors: Vec::new(),
            batch: Vec::new(),
            sample_rows: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// What requests may ask for.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The pool, to look at.
    pub fn pool(&self) -> &dyn KvPool {
        self.pool.as_ref()
    }

    /// Sequences that wait and that run.
    pub fn load(&self) -> (usize, usize) {
        (self.waiting.len(), self.active.len())
    }

    /// Queues a request under an id that no other has or had.
    ///
    /// # Errors
    /// As [`Limits::check`]. The bound of the queue is its caller's to keep.
    pub fn submit(&mut self, id: SeqId, request: Request, sink: Sink, now: Duration) -> Result<()> {
        self.limits.check(&request)?;
        let asked = request.max_draft.is_some();
        let mut seq = Sequence::new(id, request, sink, &self.limits, now);
        seq.adapts = !asked && self.adapt_draft && self.drafter.is_some();
        self.enqueue(seq);
        Ok(())
    }

    /// Runs one step for everybody. Returns whether anybody is left.
    ///
    /// # Errors
    /// When the device fails: every request has then been reported, and the engine is not to be used
    /// again.
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

    /// Ends every request with an error. Leaves the pool alone: its state may be broken.
    pub(super) fn fail(&mut self, error: &Error, now: Duration) {
        for mut seq in self.active.drain(..).chain(self.waiting.drain(..)) {
            seq.finish = Some(FinishReason::Failed(error.clone()));
            seq.end(now);
        }
    }

    fn try_step(&mut self, now: &dyn Fn() -> Duration) -> Result<()> {
        self.reap_finished(now());
        self.admit(now())?;
        self.plan();
        self.reserve(now())?;
        self.save_evicted()?;
        self.copy_blocks()?;
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
        self.keep(done);
        Ok(())
    }

    pub(super) fn copy_blocks(&mut self) -> Result<()> {
        if !self.copies.is_empty() {
            self.target.copy_blocks(&self.copies)?;
            if let Some(drafter) = &mut self.drafter {
                drafter.copy_blocks(&self.copies)?;
            }
            self.copies.clear();
        }
        Ok(())
    }

    /// Puts drafts on trial, for whom the plan has room.
    fn draft(&mut self) -> Result<()> {
        let guessing = |seq: &&Sequence| seq.draft_budget > 0;
        if let Some(drafter) = &mut self.drafter {
            let mut anchors: Vec<Anchor<'_>> = recycle(std::mem::take(&mut self.anchors));
            anchors.extend(self.active.iter().filter(guessing).map(|seq| {
                let start = self.pool.len(seq.id);
                let slice = SeqSlice { start, len: 1, blocks: self.pool.block_table(seq.id) };
                Anchor { slice, token: seq.tokens[start as usize], max: seq.draft_budget }
            }));
            if self.drafts.len() < anchors.len() {
                self.drafts.resize(anchors.len(), Vec::new());
            }
            let out = &mut self.drafts[..anchors.len()];
            if !anchors.is_empty() {
                drafter.draft(&anchors, &*self.target, out)?;
            }
            self.anchors = recycle(anchors);
            for (seq, drafts) in
                self.active.iter_mut().filter(|seq| seq.draft_budget > 0).zip(&self.drafts)
            {
                let mut drafts = drafts.as_slice();
                if seq.adapts {
                    let worth = seq.draft_stats.offer(drafts.iter().map(|draft| draft.confidence));
                    drafts = &drafts[..worth];
                }
                seq.draft(drafts.iter().map(|draft| draft.token));
            }
        }
        for seq in &mut self.active {
            if seq.draft_budget > 0 {
                if let Err(error) = seq.constrain_draft() {
                    seq.abort(error);
                } else {
                    seq.num_tokens = 1 + seq.drafts;
                }
            }
        }
        self.mask();
        Ok(())
    }

    /// Writes the masks of all choices to come.
    fn mask(&mut self) {
        let mut used = 0;
        for seq in &mut self.active {
            if needs_logits(&*self.pool, seq)
                && let Err(error) = seq.fill_masks(&mut self.masks, &mut used)
            {
                seq.abort(error);
            }
        }
    }

    fn forward(&mut self) -> Result<()> {
        let mut batch: Vec<BatchEntry<'_, B>> = recycle(std::mem::take(&mut self.batch));
        for seq in self.active.iter().filter(|seq| seq.num_tokens > 0) {
            let start = self.pool.len(seq.id);
            let rows = &seq.tokens[start as usize..start as usize + seq.num_tokens];
            let slice =
                SeqSlice { start, len: seq.num_tokens, blocks: self.pool.block_table(seq.id) };
            let logits = match needs_logits(&*self.pool, seq) {
                false => LogitsRequest::None,
                true if seq.drafts > 0 => LogitsRequest::All,
                true => LogitsRequest::Last,
            };
            batch.push(BatchEntry { slice, input: BatchInput::Tokens(rows), logits });
        }
        self.target.forward(&batch)?;
        self.batch = recycle(batch);
        Ok(())
    }

    /// What the target says behind every row with logits.
    fn sample(&mut self) -> Result<()> {
        let mut sample_rows: Vec<SampleRow<'_>> = recycle(std::mem::take(&mut self.sample_rows));
        for seq in self.active.iter().filter(|seq| needs_logits(&*self.pool, seq)) {
            let trial = seq.tokens.len() - seq.drafts;
            for i in 0..=seq.drafts {
                sample_rows.push(SampleRow {
                    row: sample_rows.len(),
                    sampling: &seq.sampling,
                    history: &seq.history,
                    drafted: &seq.tokens[trial..trial + i],
                    mask: seq.constraint.as_ref().map(|_| &self.masks[seq.mask + i]),
                    position: (trial + i) as u32,
                    logprobs: seq.logprobs,
                });
            }
        }
        self.sampled.clear();
        if !sample_rows.is_empty() {
            self.backend.sample(self.target.logits(), &sample_rows, &mut self.sampled)?;
        }
        assert_eq!(self.sampled.len(), sample_rows.len(), "every row asked gets a choice");
        self.sample_rows = recycle(sample_rows);
        Ok(())
    }

    /// Decides which rows stay.
    fn verify(&mut self, now: Duration) {
        let mut sampled = std::mem::take(&mut self.sampled);
        let mut choices = sampled.drain(..);
        for seq in self.active.iter_mut().filter(|seq| seq.num_tokens > 0) {
            if needs_logits(&*self.pool, seq) {
                seq.verify(choices.by_ref().take(seq.drafts + 1), now);
            } else {
                seq.kept = seq.num_tokens;
            }
        }
        drop(choices);
        self.sampled = sampled;
    }

    /// Shows the drafter the rows that stay. Before the commit, which may give KV blocks back that
    /// the first of many rows lie in.
    fn append_context(&mut self) -> Result<()> {
        let Some(drafter) = &mut self.drafter else { return Ok(()) };
        let mut kept: Vec<ContextSlice<'_>> = recycle(std::mem::take(&mut self.kept));
        let mut first_row = 0;
        for seq in self.active.iter().filter(|seq| seq.num_tokens > 0) {
            let start = self.pool.len(seq.id);
            let slice = SeqSlice { start, len: seq.kept, blocks: self.pool.block_table(seq.id) };
            kept.push(ContextSlice { slice, first_row });
            first_row += seq.num_tokens;
        }
        drafter.append_context(&kept, self.target.captured_hidden())?;
        self.kept = recycle(kept);
        Ok(())
    }

    /// Counts the rows that stay, tells the clients, ends who is done.
    fn keep(&mut self, now: Duration) {
        for seq in &mut self.active {
            if seq.num_tokens > 0 {
                let len = self.pool.len(seq.id) as usize;
                self.keys.clear();
                let rows = &seq.tokens[len..len + seq.kept];
                self.keys.extend(rows.iter().map(|&token| PositionKey::Token(token)));
                self.pool.commit(seq.id, &self.keys);
                seq.report_prefill((len + seq.kept) as u32);
                seq.emit();
            }
            self.pool.truncate(seq.id, self.pool.len(seq.id));
        }
        self.end_active(now);
    }
}

/// Whether its last row runs in this step: what follows it is then chosen.
fn needs_logits(pool: &dyn KvPool, seq: &Sequence) -> bool {
    seq.num_tokens > 0 && pool.len(seq.id) as usize + seq.num_tokens == seq.tokens.len()
}
