//! The target model: one forward pass over a batch of tokens of many sequences.

use super::backend::Backend;
use super::kv::KvBlocks;
use super::sequence::{SeqSlice, Token};
use super::weights::TextSpec;
use crate::Result;

/// What a batch entry feeds to the model.
pub enum BatchInput<'a, B: Backend> {
    /// Token ids, one per position.
    Tokens(&'a [Token]),
    /// Rows of finished embeddings of pictures, already normed, one per position.
    Embeds {
        /// The embeddings, `[_, hidden]`.
        buf: &'a B::Buf,
        /// First row to take.
        first_row: usize,
    },
}

impl<B: Backend> Clone for BatchInput<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for BatchInput<'_, B> {}

/// Which positions of a batch entry need logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitsRequest {
    /// None: a prompt chunk that is not the last.
    None,
    /// The last position: decode, or the last chunk of a prompt.
    Last,
    /// Every position: a draft block to verify.
    All,
}

/// Consecutive tokens of one sequence in a pass.
pub struct BatchEntry<'a, B: Backend> {
    /// Their positions and KV blocks. `slice.len` is the number of tokens.
    pub slice: SeqSlice<'a>,
    /// The tokens or embeddings.
    pub input: BatchInput<'a, B>,
    /// Which of them need logits.
    pub logits: LogitsRequest,
}

/// Bounds of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassLimits {
    /// The most tokens.
    pub max_num_batched_tokens: usize,
    /// The most tokens whose logits can be had.
    pub max_logits_rows: usize,
}

/// The target model. It holds no state of a sequence outside KV blocks: a rejected token is simply
/// not committed, and the next token at its position overwrites it.
pub trait TargetModel<B: Backend>: EmbeddingAndLmHead<B> + KvBlocks<B> + Send {
    /// Description of the model.
    fn spec(&self) -> &TextSpec;
    /// Bounds of a pass.
    fn limits(&self) -> PassLimits;
    /// One pass over a batch of prompt chunks, decode tokens and draft blocks, which reads the
    /// weights once. Writes the K and V of every token into its KV block.
    fn forward(&mut self, batch: &[BatchEntry<'_, B>]) -> Result<()>;
    /// Requested logits of the last pass in batch order, `[requested, vocab]`, after scale and soft
    /// cap.
    fn logits(&self) -> &B::Buf;
    /// Outputs of the captured layers, side by side, for every token of the last pass in batch
    /// order: `[tokens, captured layers · hidden]`. Empty when no layer is captured.
    fn captured_hidden(&self) -> &B::Buf;
}

/// The embedding and LM head of the target model, which a drafter borrows.
pub trait EmbeddingAndLmHead<B: Backend> {
    /// Embedding rows without the norm behind them: `out[i] = E[ids[i]]`.
    fn embed(&self, ids: &[Token], out: &mut B::Buf) -> Result<()>;
    /// The LM head without scale and soft cap: `[rows, hidden]` to `[rows, vocab]`.
    fn lm_head(&self, hidden: &B::Buf, rows: usize, logits: &mut B::Buf) -> Result<()>;
}
