//! The drafter: proposes a block of tokens that the target model then verifies in one pass.

use super::backend::Backend;
use super::kv::KvBlocks;
use super::sequence::{SeqSlice, Token};
use super::target::EmbeddingAndLmHead;
use crate::Result;

/// The most rows of captured hidden states that an engine keeps for a drafter before it appends
/// them: of `4 · captured_width` bytes each, part of the drafter's [`super::Footprint`].
pub const MAX_DEFERRED_ROWS: usize = 256;

/// A block drafter. Like the target model it keeps sequences in KV blocks only: its K and V are in
/// blocks of the window group, at the positions of the tokens they belong to.
///
/// Draft tokens never change the output, only its speed: the engine accepts those that equal the
/// target model's own samples.
pub trait Drafter<B: Backend>: KvBlocks<B> + Send {
    /// Layers of the target model, from 0, whose output it reads, in the order of the captured
    /// hidden states.
    fn captured_layers(&self) -> &[usize];
    /// Columns of the captured hidden states: captured layers times the hidden width.
    fn captured_width(&self) -> usize;
    /// The most draft tokens of a block. A block writes positions `anchor ..= anchor + width`.
    fn width(&self) -> usize;
    /// How many positions back it attends to (inclusive distance).
    fn window_reach(&self) -> u32;
    /// Appends tokens to its context, from the captured hidden states of the last pass. Every
    /// position of a sequence must be appended, in order, before a draft starts behind it; the slices
    /// of several steps may come in one call, a sequence more than once.
    fn append_context(
        &mut self,
        context: &[ContextSlice<'_>],
        captured_hidden: &B::Buf,
    ) -> Result<()>;
    /// Drafts the tokens behind each anchor. `out[i]` is cleared and gets at most `anchors[i].max`
    /// draft tokens; a smaller `max` changes only their number, never the tokens.
    fn draft(
        &mut self,
        anchors: &[Anchor<'_>],
        head: &dyn EmbeddingAndLmHead<B>,
        out: &mut [Vec<DraftToken>],
    ) -> Result<()>;
}

/// Tokens to append to a drafter's context.
#[derive(Clone, Copy, Debug)]
pub struct ContextSlice<'a> {
    /// Their positions and KV blocks.
    pub slice: SeqSlice<'a>,
    /// Row of the captured hidden states that belongs to the first of them.
    pub first_row: usize,
}

/// Where a draft block starts.
#[derive(Clone, Copy, Debug)]
pub struct Anchor<'a> {
    /// The anchor's position (`start`), and KV blocks reserved up to `start + width`; `len` is 1.
    pub slice: SeqSlice<'a>,
    /// The last sampled token, which the target model has not run yet.
    pub token: Token,
    /// The most draft tokens to return.
    pub max: usize,
}

/// A proposed token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DraftToken {
    /// The token.
    pub token: Token,
    /// The drafter's probability of it, 0 to 1, after the target model's scale and soft cap.
    pub confidence: f32,
}
