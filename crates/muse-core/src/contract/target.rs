//! The large model: one pass over everybody's rows.

use super::backend::Backend;
use super::place::{Place, Token};
use super::weights::TextSpec;
use super::{PageKey, Pages};
use crate::Result;

/// What the rows of a span are.
pub enum Rows<'a, B: Backend> {
    /// Token ids, one a row.
    Tokens(&'a [Token]),
    /// Rows of finished embeddings (pictures), already normed: `buf` from `first_row` on.
    Embeds {
        /// The embeddings, `[_, hidden]`.
        buf: &'a B::Buf,
        /// First row to take.
        first_row: usize,
    },
}

impl<B: Backend> Clone for Rows<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Rows<'_, B> {}

/// Which rows of a span need scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scores {
    /// None: a prompt chunk that is not the last.
    None,
    /// The last row.
    Last,
    /// Every row: a drafted block.
    All,
}

/// Consecutive rows of one sequence in a pass.
pub struct Span<'a, B: Backend> {
    /// Where they live. `place.rows` is the number of rows.
    pub place: Place<'a>,
    /// What they are.
    pub rows: Rows<'a, B>,
    /// Which of them need scores.
    pub scores: Scores,
}

/// The large model. Holds no state of a sequence outside the pages: a rejected row is forgotten by
/// never being counted, and the next rows at its position overwrite it.
pub trait Target<B: Backend>: Head<B> + Pages<B> + Send {
    /// What the model is.
    fn spec(&self) -> &TextSpec;
    /// The most rows of a pass and the most score rows of a pass.
    fn limits(&self) -> (usize, usize);
    /// One pass over all spans: prompt chunks, decode rows and drafted blocks together, so that
    /// weights are read once. Writes the K/V of every row into its pages.
    fn forward(&mut self, batch: &[Span<'_, B>]) -> Result<()>;
    /// The asked rows of the last pass in batch order, `[asked, vocab]`, after scale and cap.
    fn scores(&self) -> &B::Buf;
    /// Outputs of the tapped layers for every row of the last pass, in batch order, side by side:
    /// `[rows, taps · hidden]`. Empty when built without taps.
    fn taps(&self) -> &B::Buf;
}

/// What a drafter borrows of the large model.
pub trait Head<B: Backend> {
    /// RAW embedding rows, without the norm: `out[i] = E[ids[i]]`.
    fn embed(&self, ids: &[Token], out: &mut B::Buf) -> Result<()>;
    /// RAW head, without multiplier and cap: `[rows, hidden]` to `[rows, vocab]`.
    fn unembed(&self, hidden: &B::Buf, rows: usize, scores: &mut B::Buf) -> Result<()>;
}

impl From<Token> for PageKey {
    fn from(token: Token) -> Self {
        Self::Token(token)
    }
}
