//! The drafter: proposes a block of tokens that the target model then verifies in one pass.

use super::backend::Backend;
use super::kv::KvBlocks;
use super::sequence::{SeqSlice, Token};
use super::target::EmbeddingAndLmHead;
use crate::Result;

/// A block drafter. Like the target model it keeps sequences in KV blocks only: its K and V lie in
/// the blocks of the window group, at the positions of the tokens they come from.
///
/// Draft tokens never change the output, only how fast it comes: the engine accepts what equals the
/// target model's own sample.
pub trait Drafter<B: Backend>: KvBlocks<B> + Send {
    /// Layers of the target model whose OUTPUT it reads, from 0, in the order they are laid side
    /// by side in the captured hidden states.
    fn captured_layers(&self) -> &[usize];
    /// The most draft tokens of a block. A block writes positions `anchor ..= anchor + width`.
    fn width(&self) -> usize;
    /// How far back a position is still attended to (inclusive distance).
    fn reach(&self) -> u32;
    /// Takes tokens into its context from the captured hidden states of the last pass. Every
    /// position of a sequence must be appended, in order, before a draft that starts behind it.
    fn append_context(
        &mut self,
        context: &[ContextSlice<'_>],
        captured_hidden: &B::Buf,
    ) -> Result<()>;
    /// Proposes what follows each anchor. `out[i]` is cleared and gets at most `anchors[i].max`
    /// draft tokens; a shorter `max` never changes the tokens, only their number.
    fn draft(
        &mut self,
        anchors: &[Anchor<'_>],
        head: &dyn EmbeddingAndLmHead<B>,
        out: &mut [Vec<DraftToken>],
    ) -> Result<()>;
}

/// Accepted tokens: their positions, and where their hidden states are.
#[derive(Clone, Copy, Debug)]
pub struct ContextSlice<'a> {
    /// Positions and KV blocks; `slice.len` tokens were accepted.
    pub slice: SeqSlice<'a>,
    /// Their first row in the captured hidden states.
    pub first_row: usize,
}

/// Where a draft block starts.
#[derive(Clone, Copy, Debug)]
pub struct Anchor<'a> {
    /// The anchor's position (`start`), and KV blocks reserved up to `start + width`; `len` is 1.
    pub slice: SeqSlice<'a>,
    /// The last sampled token, not yet run through the target model.
    pub token: Token,
    /// The most draft tokens wanted.
    pub max: usize,
}

/// A proposed token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DraftToken {
    /// The token.
    pub token: Token,
    /// The drafter's own probability of it, 0 to 1, after the target model's scale and soft cap.
    pub confidence: f32,
}
