//! A compiled grammar as the engine's constraint.

use llguidance::Matcher;
use llguidance::toktrie::SimpleVob;
use muse_core::contract::{Constraint, Token, TokenMask};
use muse_core::{Error, Result};

/// Follows one turn.
pub(super) struct GrammarConstraint {
    matcher: Matcher,
    /// The mask of the state at hand, once it was asked for.
    mask: Option<SimpleVob>,
    /// Tokens accepted behind the end of the turn, where guesses may run on and nothing counts.
    behind: usize,
}

impl GrammarConstraint {
    pub(super) fn new(matcher: Matcher) -> Self {
        Self { matcher, mask: None, behind: 0 }
    }

    /// Whether the turn is complete.
    fn ended(&self) -> bool {
        self.matcher.is_stopped() && !self.matcher.is_error()
    }

    fn current(&mut self) -> Result<&SimpleVob> {
        if self.mask.is_none() {
            let mask = self.matcher.compute_mask_or_eos().map_err(too_complex)?;
            self.mask = Some(mask);
        }
        Ok(self.mask.as_ref().expect("just computed"))
    }
}

impl Constraint for GrammarConstraint {
    fn mask(&mut self, out: &mut TokenMask) -> Result<()> {
        let mask = self.current()?;
        out.words.clear();
        out.words.extend_from_slice(mask.as_slice());
        Ok(())
    }

    fn accept(&mut self, token: Token) -> Result<()> {
        if self.ended() {
            self.behind += 1;
            return Ok(());
        }
        self.mask = None;
        self.matcher.consume_token(token.0).map_err(too_complex)
    }

    fn rollback(&mut self, tokens: usize) -> Result<()> {
        let behind = tokens.min(self.behind);
        self.behind -= behind;
        if tokens == behind {
            return Ok(());
        }
        self.mask = None;
        self.matcher.rollback(tokens - behind).map_err(too_complex)
    }

    fn legal_prefix(&mut self, draft: &[Token]) -> Result<usize> {
        let ids: Vec<u32> = draft.iter().map(|token| token.0).collect();
        self.matcher.validate_tokens(&ids).map_err(too_complex)
    }

    fn forced(&mut self) -> Result<Option<Token>> {
        if self.ended() {
            return Ok(None);
        }
        let mask = self.current()?;
        let mut allowed = mask.iter();
        let only = allowed.next().filter(|_| allowed.next().is_none());
        Ok(only.map(Token))
    }
}

/// What can go wrong while following a grammar: it grows beyond the limits of the parser.
fn too_complex(fault: impl std::fmt::Display) -> Error {
    Error::Invalid(format!("the grammar is too complex to follow: {fault}; use a simpler schema"))
}
