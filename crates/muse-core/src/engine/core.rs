//! The state of an engine, and the calls that change it between steps.

use std::sync::Arc;
use std::time::Duration;

use super::deferred::DeferredContext;
use super::models::Models;
use super::offload::Offloader;
use super::pictures::Pictures;
use super::sequence::Sequence;
use super::speculation::Speculation;
use super::{EngineOptions, Limits, TargetItl};
use crate::contract::{
    Anchor, Backend, BatchEntry, BlockCopy, ContextSlice, DraftToken, Drafter, FinishReason,
    KvPool, MAX_DEFERRED_ROWS, PositionKey, Request, SampleRow, Sampled, SeqId, Sink, TargetModel,
    TokenMask, VisionEncoder,
};
use crate::{Error, Result};

/// The engine without its thread: requests go in, [`EngineCore::step`] calls their sinks.
///
/// `now` is the caller's clock; deadlines, timings and the cost of steps are read from it alone.
pub struct EngineCore<B: Backend> {
    pub(super) backend: Arc<B>,
    pub(super) models: Models<B>,
    pub(super) pool: Box<dyn KvPool>,
    pub(super) offload: Option<Offloader>,
    pub(super) deferred: DeferredContext<B>,
    pub(super) pictures: Pictures<B>,
    /// Time that the step has spent on pictures.
    pub(super) encode_time: Duration,
    pub(super) limits: Limits,
    /// The most prompt tokens of one sequence in a step.
    pub(super) prefill_chunk: usize,
    pub(super) mixed_prefill_tokens: usize,
    pub(super) target_itl: TargetItl,
    adapt_draft: bool,
    pub(super) speculation: Speculation,
    pub(super) waiting: Vec<Sequence>,
    /// Best rank first.
    pub(super) active: Vec<Sequence>,
    /// Copies of KV blocks to make before the next pass.
    pub(super) copies: Vec<BlockCopy>,
    pub(super) buffers: Buffers<B>,
}

/// Vectors that are kept between steps for their memory: a step does not allocate.
pub(super) struct Buffers<B: Backend> {
    pub(super) keys: Vec<PositionKey>,
    /// Indices of the active sequences with prompt tokens left.
    pub(super) prefill_order: Vec<usize>,
    pub(super) drafts: Vec<Vec<DraftToken>>,
    pub(super) masks: Vec<TokenMask>,
    pub(super) sampled: Vec<Sampled>,
    pub(super) anchors: Vec<Anchor<'static>>,
    pub(super) batch: Vec<BatchEntry<'static, B>>,
    pub(super) sample_rows: Vec<SampleRow<'static>>,
    pub(super) context: Vec<ContextSlice<'static>>,
}

impl<B: Backend> Buffers<B> {
    fn new(max_deferred: usize) -> Self {
        Self {
            keys: Vec::new(),
            prefill_order: Vec::new(),
            drafts: Vec::new(),
            masks: Vec::new(),
            sampled: Vec::new(),
            anchors: Vec::new(),
            batch: Vec::new(),
            sample_rows: Vec::new(),
            context: Vec::with_capacity(max_deferred),
        }
    }
}

impl<B: Backend> EngineCore<B> {
    /// Joins the parts of an engine; [`super::spawn`] says how they must fit.
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
        let limits =
            Limits::new(target.as_ref(), drafter.as_deref(), pool.as_ref(), None, options)?;
        let deferred = DeferredContext::new(&*backend, drafter.as_deref())?;
        Ok(Self::join(backend, target, drafter, pool, options, limits, deferred))
    }

    /// Joins parts whose limits are known, with memory for what is deferred.
    pub(super) fn join(
        backend: Arc<B>,
        target: Box<dyn TargetModel<B>>,
        drafter: Option<Box<dyn Drafter<B>>>,
        pool: Box<dyn KvPool>,
        options: &EngineOptions,
        limits: Limits,
        deferred: DeferredContext<B>,
    ) -> Self {
        let max_deferred = if drafter.is_some() { MAX_DEFERRED_ROWS } else { 0 };
        Self {
            backend,
            models: Models { target, drafter },
            pool,
            offload: options.kv_offload.clone().map(Offloader::new),
            deferred,
            pictures: Pictures::new(None),
            encode_time: Duration::ZERO,
            // A larger chunk would reserve more blocks than a lone sequence can have.
            prefill_chunk: options.prefill_chunk.min(limits.max_num_batched_tokens),
            mixed_prefill_tokens: options.mixed_prefill_tokens,
            target_itl: options.target_itl,
            adapt_draft: options.adapt_draft,
            speculation: Speculation::new(limits.draft),
            limits,
            waiting: Vec::new(),
            active: Vec::new(),
            copies: Vec::new(),
            buffers: Buffers::new(max_deferred),
        }
    }

    /// The engine with an encoder for the pictures of prompts.
    pub fn with_encoder(mut self, encoder: Box<dyn VisionEncoder<B>>) -> Self {
        self.limits.merge = Some(encoder.merge());
        self.pictures = Pictures::new(Some(encoder));
        self
    }

    /// Bounds of requests.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The pool, for inspection.
    pub fn pool(&self) -> &dyn KvPool {
        self.pool.as_ref()
    }

    /// Numbers of sequences that wait and that run.
    pub fn load(&self) -> (usize, usize) {
        (self.waiting.len(), self.active.len())
    }

    /// Queues a request under an id that no other has or had.
    ///
    /// # Errors
    /// As [`Limits::check`]. The caller keeps the bound of the queue.
    pub fn submit(&mut self, id: SeqId, request: Request, sink: Sink, now: Duration) -> Result<()> {
        self.limits.check(&request)?;
        let fixed = request.max_draft.is_some();
        let mut seq = Sequence::new(id, request, sink, &self.limits, now);
        seq.adaptive = !fixed && self.adapt_draft && self.models.drafter.is_some();
        self.waiting.push(seq);
        Ok(())
    }

    /// Ends a sequence at the next step. Ids that are unknown or ended are ignored.
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

    /// Ends every request with an error. Leaves the pool alone: its state may be inconsistent.
    pub(super) fn fail(&mut self, error: &Error, now: Duration) {
        self.pictures.clear();
        for mut seq in self.active.drain(..).chain(self.waiting.drain(..)) {
            seq.finish = Some(FinishReason::Failed(error.clone()));
            seq.end(now);
        }
    }

    /// Offloads every KV block that a later prompt could reuse. For the end of an engine without
    /// requests.
    ///
    /// # Errors
    /// When the device fails.
    pub fn offload_all(&mut self) -> Result<()> {
        match &mut self.offload {
            Some(offload) => offload.save_all(self.pool.as_mut(), &self.models),
            None => Ok(()),
        }
    }
}
