//! A target model with its drafter and a pool, driven without the engine, so that tests can compare
//! hidden states, logits and draft tokens of each pass. Sampling is greedy.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use muse_core::Result;
use muse_core::contract::{
    Anchor, Backend, BatchEntry, BatchInput, BlockCount, ContextSlice, Drafter, EmbeddingAndLmHead,
    Footprint, History, KvBlocks, KvPool, KvType, LogitsRequest, ModelSizes, PositionKey,
    SampleRow, Sampling, SeqId, SeqSlice, TargetModel, Token, WeightSource,
};
use muse_core::engine::{EngineCore, EngineOptions};
use muse_core::model::{Model, ModelFootprint};
use muse_dflash::Dflash;
use muse_kv::{Pool, PoolOptions};

/// The most tokens and logits rows of a pass.
pub const MAX_ROWS: usize = 1024;
const KV_BLOCKS: BlockCount = BlockCount { full: 64, window: 64 };

/// Models on one backend that share a pool.
pub struct Pair<B: Backend> {
    /// The device.
    pub backend: Arc<B>,
    /// The target model.
    pub target: Model<B>,
    /// Its drafter, if there is one.
    pub drafter: Option<Dflash<B>>,
    /// KV blocks of both.
    pub pool: Pool,
    opened: u64,
}

/// A sequence: its tokens, of which the first `done` went through the model.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its name in the pool.
    pub seq: SeqId,
    /// Prompt and completion.
    pub tokens: Vec<Token>,
    /// Positions committed.
    pub done: usize,
}

/// A greedy completion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// Its tokens, the stop token included.
    pub ids: Vec<Token>,
    /// Draft tokens accepted of each verified block.
    pub accepted: Vec<usize>,
    /// The draft tokens of the first block.
    pub first_draft: Vec<Token>,
}

impl<B: Backend> Pair<B> {
    /// Loads both models on `backend`. The target model captures the hidden states of the layers that
    /// the drafter reads, or without a drafter those of `captured_layers`.
    pub fn new(
        backend: B,
        target: &dyn WeightSource,
        drafter: Option<&dyn WeightSource>,
        kv: KvType,
        captured_layers: &[usize],
    ) -> Result<Self> {
        let backend = Arc::new(backend);
        let quiet = &mut |_, _| {};
        let spec = drafter.and_then(|source| source.spec().drafter.clone());
        let captured_layers =
            spec.as_ref().map_or(captured_layers.to_vec(), |spec| spec.target_layers.clone());
        let sizes = ModelSizes {
            kv,
            blocks: KV_BLOCKS,
            max_num_seqs: 3,
            max_num_batched_tokens: MAX_ROWS,
            max_logits_rows: MAX_ROWS,
        };
        let target = Model::new(backend.clone(), target, &sizes, &captured_layers, quiet)?;
        // Fewer than a pass of the target model: longer contexts are taken in several passes.
        let sizes = ModelSizes { max_num_batched_tokens: 48, ..sizes };
        let drafter = drafter
            .map(|source| Dflash::new(backend.clone(), source, target.spec(), &sizes, quiet))
            .transpose()?;
        let footprint = ModelFootprint { spec: target.spec(), captured_layers: 0 };
        let pool = Pool::new(PoolOptions {
            blocks: KV_BLOCKS,
            window_reach: footprint.window_reach().max(spec.map_or(0, |spec| spec.reach)),
            max_step_tokens: MAX_ROWS as u32,
            ..PoolOptions::default()
        });
        Ok(Self { backend, target, drafter, pool, opened: 0 })
    }

    /// The same parts, run by the engine.
    pub fn into_engine(self, options: &EngineOptions) -> Result<EngineCore<B>> {
        let drafter = self.drafter.map(|drafter| Box::new(drafter) as Box<dyn Drafter<B>>);
        EngineCore::new(self.backend, Box::new(self.target), drafter, Box::new(self.pool), options)
    }

    /// Opens a sequence with nothing cached: all its tokens will run.
    pub fn open(&mut self, prompt: &[Token]) -> Result<Run> {
        self.opened += 1;
        let seq = SeqId(self.opened);
        self.pool.open(seq, &[])?;
        Ok(Run { seq, tokens: prompt.to_vec(), done: 0 })
    }

    /// Opens a sequence with the positions of its prefix that earlier ones left in the cache.
    pub fn resume(&mut self, prompt: &[Token]) -> Result<Run> {
        self.opened += 1;
        let seq = SeqId(self.opened);
        let keys: Vec<PositionKey> = prompt.iter().map(|&token| token.into()).collect();
        let done = self.pool.open(seq, &keys)? as usize;
        Ok(Run { seq, tokens: prompt.to_vec(), done })
    }

    /// Runs tokens of several sequences in one pass, each from its committed end on.
    pub fn pass(&mut self, batch: &[(&Run, &[Token], LogitsRequest)]) -> Result<()> {
        let mut copies = Vec::new();
        let block = self.drafter.as_ref().map_or(1, |drafter| drafter.width() + 1);
        for (run, tokens, _) in batch {
            let end = run.done + tokens.len().max(block);
            self.pool.reserve(run.seq, end as u32, &mut copies)?;
        }
        self.target.copy_blocks(&copies)?;
        if let Some(drafter) = &mut self.drafter {
            drafter.copy_blocks(&copies)?;
        }
        let batch: Vec<BatchEntry<'_, B>> = batch
            .iter()
            .map(|&(run, tokens, logits)| BatchEntry {
                slice: SeqSlice {
                    start: run.done as u32,
                    len: tokens.len(),
                    blocks: self.pool.block_table(run.seq),
                },
                input: BatchInput::Tokens(tokens),
                logits,
            })
            .collect();
        self.target.forward(&batch)
    }

    /// Commits `tokens`, whose batch rows in the last pass start at `first_row`.
    pub fn keep(&mut self, run: &mut Run, tokens: &[Token], first_row: usize) -> Result<()> {
        if let Some(drafter) = &mut self.drafter {
            let blocks = self.pool.block_table(run.seq);
            let slice = SeqSlice { start: run.done as u32, len: tokens.len(), blocks };
            drafter.append_context(
                &[ContextSlice { slice, first_row }],
                self.target.captured_hidden(),
            )?;
        }
        let keys: Vec<PositionKey> = tokens.iter().map(|&token| token.into()).collect();
        self.pool.commit(run.seq, &keys);
        run.done += tokens.len();
        Ok(())
    }

    /// Runs the prompt in chunks and appends the first token of the answer.
    pub fn prefill(&mut self, run: &mut Run, chunk: usize) -> Result<()> {
        let prompt = run.tokens.clone();
        for tokens in prompt[run.done..].chunks(chunk.min(MAX_ROWS)) {
            let last = run.done + tokens.len() == prompt.len();
            let logits = if last { LogitsRequest::Last } else { LogitsRequest::None };
            self.pass(&[(run, tokens, logits)])?;
            self.keep(run, tokens, 0)?;
        }
        run.tokens.push(self.best(0..1)?[0]);
        Ok(())
    }

    /// The token with the highest logit for each of these rows of the last pass's logits.
    pub fn best(&self, rows: Range<usize>) -> Result<Vec<Token>> {
        let (greedy, nothing) = (Sampling::default(), History::default());
        let sample_row = |row| SampleRow {
            row,
            sampling: &greedy,
            history: &nothing,
            drafted: &[],
            mask: None,
            position: 0,
            logprobs: None,
        };
        let mut sampled = Vec::new();
        self.backend.sample(
            self.target.logits(),
            &rows.map(sample_row).collect::<Vec<_>>(),
            &mut sampled,
        )?;
        Ok(sampled.iter().map(|sampled| sampled.token).collect())
    }

    /// Drafts up to `max` tokens behind the run's last token, which has not run yet. What the drafter
    /// gets from the target model's embedding and sends to its `lm_head` is recorded in `record`.
    pub fn draft(&mut self, run: &Run, max: usize, record: &mut DraftRecord) -> Result<Vec<Token>> {
        let Self { backend, target, drafter, pool, .. } = self;
        let drafter = drafter.as_mut().expect("a pair with a drafter");
        let end = (run.done + drafter.width() + 1) as u32;
        let mut copies = Vec::new();
        pool.reserve(run.seq, end, &mut copies)?;
        assert!(copies.is_empty(), "a block shared behind the end of a sequence");
        let slice = SeqSlice { start: run.done as u32, len: 1, blocks: pool.block_table(run.seq) };
        let anchor = Anchor { slice, token: run.tokens[run.done], max };
        let head = RecordingHead { target, backend: &**backend, record: RefCell::new(record) };
        let mut out = [Vec::new()];
        drafter.draft(&[anchor], &head, &mut out)?;
        let [drafts] = out;
        Ok(drafts.iter().map(|draft| draft.token).collect())
    }

    /// Verifies draft tokens in one pass: commits the accepted ones and appends the token sampled
    /// behind them. Returns how many were accepted.
    pub fn verify(&mut self, run: &mut Run, drafts: &[Token]) -> Result<usize> {
        let mut rows = vec![run.tokens[run.done]];
        rows.extend(drafts);
        self.pass(&[(run, &rows, LogitsRequest::All)])?;
        let sampled = self.best(0..rows.len())?;
        let accepted = drafts.iter().zip(&sampled).take_while(|(a, b)| a == b).count();
        self.keep(run, &rows[..=accepted], 0)?;
        run.tokens.extend(&sampled[..=accepted]);
        Ok(accepted)
    }

    /// Completes a prompt greedily, with `chunk` prompt tokens a pass and at most `draft` draft tokens
    /// a block.
    pub fn complete(
        &mut self,
        mut run: Run,
        chunk: usize,
        draft: usize,
        stop: &[Token],
        max_tokens: usize,
    ) -> Result<Completion> {
        let prompt = run.tokens.len();
        self.prefill(&mut run, chunk)?;
        let completion = self.decode(&mut run, prompt, draft, stop, max_tokens);
        self.pool.close(run.seq);
        completion
    }

    fn decode(
        &mut self,
        run: &mut Run,
        prompt: usize,
        draft: usize,
        stop: &[Token],
        max_tokens: usize,
    ) -> Result<Completion> {
        let mut completion = Completion::default();
        loop {
            let ids = &run.tokens[prompt..];
            let stopped = ids.iter().position(|id| stop.contains(id)).map(|at| at + 1);
            let end = stopped.unwrap_or(usize::MAX).min(max_tokens);
            if end <= ids.len() {
                if let Some(last) = completion.accepted.last_mut() {
                    // Neither the bonus token nor draft tokens behind the end count as accepted.
                    *last -= (ids.len() - end).saturating_sub(1).min(*last);
                }
                completion.ids = ids[..end].to_vec();
                return Ok(completion);
            }
            // The last token is never a draft token: every pass samples one more than it verifies.
            let budget = draft.min(max_tokens - ids.len() - 1);
            let mut drafts = Vec::new();
            if budget > 0 {
                drafts = self.draft(run, budget, &mut DraftRecord::default())?;
                if completion.accepted.is_empty() {
                    completion.first_draft.clone_from(&drafts);
                }
            }
            let accepted = self.verify(run, &drafts)?;
            if budget > 0 {
                completion.accepted.push(accepted);
            }
        }
    }

    /// The first `rows` rows of the last pass's logits, `[rows, vocab]`.
    pub fn read_logits(&self, rows: usize) -> Result<Vec<f32>> {
        let mut logits = vec![0.0; rows * self.target.spec().vocab];
        self.backend.read(self.target.logits(), 0, &mut logits)?;
        Ok(logits)
    }
}

/// What passed between a drafter and the target model's embedding and `lm_head` for one draft block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DraftRecord {
    /// The block's embeddings, `[block, hidden]`.
    pub noise: Vec<f32>,
    /// Hidden states of the draft tokens, after the final norm, `[drafts, hidden]`.
    pub hidden: Vec<f32>,
    /// Raw logits of the draft tokens, `[drafts, vocab]`.
    pub logits: Vec<f32>,
    /// A planted fault: embeddings are RMS-normed with this epsilon before the drafter gets them.
    pub norm_embeddings: Option<f32>,
}

struct RecordingHead<'a, B: Backend> {
    target: &'a Model<B>,
    backend: &'a B,
    record: RefCell<&'a mut DraftRecord>,
}

impl<B: Backend> RecordingHead<'_, B> {
    fn read(&self, buf: &B::Buf, rows: usize, cols: usize) -> Result<Vec<f32>> {
        let mut values = vec![0.0; rows * cols];
        self.backend.read(buf, 0, &mut values)?;
        Ok(values)
    }
}

impl<B: Backend> EmbeddingAndLmHead<B> for RecordingHead<'_, B> {
    fn embed(&self, ids: &[Token], out: &mut B::Buf) -> Result<()> {
        let (rows, hidden) = (ids.len(), self.target.spec().hidden);
        let mut record = self.record.borrow_mut();
        if let Some(eps) = record.norm_embeddings {
            let mut raw = self.backend.alloc(rows, hidden)?;
            self.target.embed(ids, &mut raw)?;
            self.backend.rms_norm(&raw, rows, None, eps, out)?;
        } else {
            self.target.embed(ids, out)?;
        }
        record.noise = self.read(out, rows, hidden)?;
        Ok(())
    }

    fn lm_head(&self, hidden: &B::Buf, rows: usize, logits: &mut B::Buf) -> Result<()> {
        self.target.lm_head(hidden, rows, logits)?;
        let mut record = self.record.borrow_mut();
        record.hidden = self.read(hidden, rows, self.target.spec().hidden)?;
        record.logits = self.read(logits, rows, self.target.spec().vocab)?;
        Ok(())
    }
}
