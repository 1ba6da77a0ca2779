//! The drafter: guesses a block of tokens that the large model then checks in one pass.

use super::Pages;
use super::backend::Backend;
use super::place::{Place, Token};
use super::target::Head;
use crate::Result;

/// A block drafter. Like the large model it keeps sequences in pages only: its K/V lie in the
/// window group's pages, at the positions of the rows they come from.
///
/// Guesses never change the output, only how fast it comes: the engine keeps what equals the
/// large model's own choice.
pub trait Drafter<B: Backend>: Pages<B> + Send {
    /// Layers of the large model whose OUTPUT it wants, from 0, in the order they are laid side
    /// by side in the taps.
    fn layers(&self) -> &[usize];
    /// The most guesses in a block. A block writes positions `anchor ..= anchor + width`.
    fn width(&self) -> usize;
    /// How far back a row still matters, in positions (inclusive distance).
    fn reach(&self) -> u32;
    /// Takes rows over into its context. Every position of a sequence must be absorbed, in order,
    /// before a draft that starts behind it.
    fn absorb(&mut self, kept: &[Kept<'_>], taps: &B::Buf) -> Result<()>;
    /// Guesses what follows each anchor. `out[i]` is cleared and gets at most `anchors[i].max`
    /// guesses; a shorter `max` never changes the guesses, only their number.
    fn draft(
        &mut self,
        anchors: &[Anchor<'_>],
        head: &dyn Head<B>,
        out: &mut [Vec<Guess>],
    ) -> Result<()>;
}

/// Rows that stayed: where they live and where their taps are.
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a> {
    /// Positions and pages; `place.rows` rows were kept.
    pub place: Place<'a>,
    /// Their first row in the taps.
    pub first_row: usize,
}

/// Where a block starts.
#[derive(Clone, Copy, Debug)]
pub struct Anchor<'a> {
    /// The anchor's position (`start`), and pages reserved up to `start + width`; `rows` is 1.
    pub place: Place<'a>,
    /// The last chosen token, not yet run through the large model.
    pub token: Token,
    /// The most guesses wanted.
    pub max: usize,
}

/// A guessed token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guess {
    /// The token.
    pub token: Token,
    /// Its probability in the drafter's eyes, 0 to 1, after the large model's multiplier and cap.
    pub confidence: f32,
}
