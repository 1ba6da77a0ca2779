//! Runs a loaded model pass by pass, one sequence at a time: for benchmarks and prompt logits,
//! which the engine has no interface for.

use muse_core::Result;
use muse_core::contract::{
    Backend, BatchEntry, BatchInput, KvPool, LogitsRequest, PassLimits, PositionKey, SeqId,
    SeqSlice, TargetModel, Token,
};
use muse_kv::{Pool, PoolOptions};

const SEQ: SeqId = SeqId(0);

/// One sequence of a model whose engine does not run. Begins empty.
pub trait ModelRunner {
    /// Bounds of a pass.
    fn limits(&self) -> PassLimits;
    /// Runs tokens behind the committed positions.
    ///
    /// # Errors
    /// [`muse_core::Error::Exhausted`] when the KV cache cannot hold them.
    fn forward(&mut self, tokens: &[Token], logits: LogitsRequest) -> Result<()>;
    /// Commits the positions of the last pass, whose tokens were `tokens`. Without it the next pass
    /// overwrites them.
    fn commit(&mut self, tokens: &[Token]);
    /// Forgets all positions: the sequence is empty again.
    ///
    /// # Errors
    /// What the KV pool returns.
    fn reset(&mut self) -> Result<()>;
    /// Replaces `out` by the logits of the last pass, `[rows, vocab]`, after scale and soft cap.
    ///
    /// # Errors
    /// What the device returns.
    fn logits(&self, rows: usize, out: &mut Vec<f32>) -> Result<()>;
}

/// A [`ModelRunner`] with a KV pool of its own. The drafter's KV blocks are not written, so its
/// pool shares nothing with the engine's.
pub(super) struct SingleSeqRunner<'a, B: Backend> {
    backend: &'a B,
    target: &'a mut dyn TargetModel<B>,
    pool: Pool,
}

impl<'a, B: Backend> SingleSeqRunner<'a, B> {
    pub(super) fn new(
        backend: &'a B,
        target: &'a mut dyn TargetModel<B>,
        options: PoolOptions,
    ) -> Result<Self> {
        let mut pool = Pool::new(options);
        pool.open(SEQ, &[])?;
        Ok(Self { backend, target, pool })
    }
}

impl<B: Backend> ModelRunner for SingleSeqRunner<'_, B> {
    fn limits(&self) -> PassLimits {
        self.target.limits()
    }

    fn forward(&mut self, tokens: &[Token], logits: LogitsRequest) -> Result<()> {
        let start = self.pool.len(SEQ);
        let mut copies = Vec::new();
        self.pool.reserve(SEQ, start + tokens.len() as u32, &mut copies)?;
        self.target.copy_blocks(&copies)?;
        let slice = SeqSlice { start, len: tokens.len(), blocks: self.pool.block_table(SEQ) };
        self.target.forward(&[BatchEntry { slice, input: BatchInput::Tokens(tokens), logits }])
    }

    fn commit(&mut self, tokens: &[Token]) {
        let keys: Vec<PositionKey> = tokens.iter().map(|&token| token.into()).collect();
        self.pool.commit(SEQ, &keys);
    }

    fn reset(&mut self) -> Result<()> {
        self.pool.close(SEQ);
        self.pool.open(SEQ, &[]).map(|_| ())
    }

    fn logits(&self, rows: usize, out: &mut Vec<f32>) -> Result<()> {
        out.resize(rows * self.target.spec().vocab, 0.0);
        self.backend.read(self.target.logits(), 0, out)
    }
}
