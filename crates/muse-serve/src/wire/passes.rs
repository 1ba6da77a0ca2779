//! A loaded model driven pass by pass, one sequence at a time: what timing and scoring need and the
//! engine hides.

use muse_core::Result;
use muse_core::contract::{
    Backend, BatchEntry, BatchInput, KvBlocks, KvPool, LogitsRequest, PositionKey, SeqId, SeqSlice,
    TargetModel, Token,
};
use muse_core::model::Model;
use muse_kv::{Pool, PoolOptions};

const SEQ: SeqId = SeqId(0);

/// One sequence of a model that does not run yet. Begins empty.
pub trait Passes {
    /// The most rows of a pass and the most of them that are scored.
    fn limits(&self) -> (usize, usize);
    /// Runs tokens behind the rows that were kept.
    ///
    /// # Errors
    /// [`muse_core::Error::Exhausted`] when the cache has no room for them.
    fn pass(&mut self, tokens: &[Token], logits: LogitsRequest) -> Result<()>;
    /// Keeps the rows of the last pass, which were these tokens; without it the next pass takes
    /// their place.
    fn keep(&mut self, tokens: &[Token]);
    /// Forgets all rows: the next pass begins again.
    ///
    /// # Errors
    /// What the cache says.
    fn restart(&mut self) -> Result<()>;
    /// Replaces `out` by the logits of the last pass, `[rows, vocab]`, after scale and cap.
    ///
    /// # Errors
    /// What the device says.
    fn logits(&self, rows: usize, out: &mut Vec<f32>) -> Result<()>;
}

/// [`Passes`] with a pool of its own: no drafter sees these rows, so nothing may find them later.
pub(super) struct Line<'a, B: Backend> {
    backend: &'a B,
    target: &'a mut Model<B>,
    pool: Pool,
}

impl<'a, B: Backend> Line<'a, B> {
    pub(super) fn new(
        backend: &'a B,
        target: &'a mut Model<B>,
        options: PoolOptions,
    ) -> Result<Self> {
        let mut pool = Pool::new(options);
        pool.open(SEQ, &[])?;
        Ok(Self { backend, target, pool })
    }
}

impl<B: Backend> Passes for Line<'_, B> {
    fn limits(&self) -> (usize, usize) {
        let limits = self.target.limits();
        (limits.max_num_batched_tokens, limits.max_logits_rows)
    }

    fn pass(&mut self, tokens: &[Token], logits: LogitsRequest) -> Result<()> {
        let start = self.pool.len(SEQ);
        let mut copies = Vec::new();
        self.pool.reserve(SEQ, start + tokens.len() as u32, &mut copies)?;
        self.target.copy_blocks(&copies)?;
        let slice = SeqSlice { start, len: tokens.len(), blocks: self.pool.block_table(SEQ) };
        self.target.forward(&[BatchEntry { slice, input: BatchInput::Tokens(tokens), logits }])
    }

    fn keep(&mut self, tokens: &[Token]) {
        let keys: Vec<PositionKey> = tokens.iter().map(|&token| token.into()).collect();
        self.pool.commit(SEQ, &keys);
    }

    fn restart(&mut self) -> Result<()> {
        self.pool.close(SEQ);
        self.pool.open(SEQ, &[]).map(|_| ())
    }

    fn logits(&self, rows: usize, out: &mut Vec<f32>) -> Result<()> {
        out.resize(rows * self.target.spec().vocab, 0.0);
        self.backend.read(self.target.logits(), 0, out)
    }
}
