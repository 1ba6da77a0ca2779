//! A compiled grammar as the engine's constraint.

use llguidance::Matcher;
use llguidance::toktrie::SimpleVob;
use muse_core::contract::{Constraint, Token, TokenMask};
use muse_core::{Error, Result};

use super::explain::too_complex;

/// Constrains one answer.
pub(super) struct GrammarConstraint {
    matcher: Matcher,
    /// The mask of the current state, once computed.
    mask: Option<SimpleVob>,
    /// Tokens accepted up to the end of the answer.
    accepted: usize,
    /// Tokens accepted after it: a draft may run past the end, and what it holds there does not
    /// matter.
    after_end: usize,
}

impl GrammarConstraint {
    pub(super) fn new(matcher: Matcher) -> Self {
        Self { matcher, mask: None, accepted: 0, after_end: 0 }
    }

    /// Whether the answer is complete.
    fn is_complete(&self) -> bool {
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
        if self.is_complete() {
            self.after_end += 1;
            return Ok(());
        }
        // A matcher cannot be used after it was given a token that does not fit, so tokens are
        // validated first. Validation also accepts other tokenizations of a forced text, which the
        // mask leaves out.
        let masked = self.mask.as_ref().is_some_and(|mask| allows(mask, token));
        let fits = masked || self.matcher.validate_tokens(&[token.0]).map_err(too_complex)? == 1;
        if !fits {
            return Err(Error::Invalid(format!(
                "token {} does not fit after {} accepted tokens; the mask lists those that do",
                token.0, self.accepted
            )));
        }
        self.mask = None;
        self.matcher.consume_token(token.0).map_err(too_complex)?;
        self.accepted += 1;
        Ok(())
    }

    fn rollback(&mut self, tokens: usize) -> Result<()> {
        if tokens > self.accepted + self.after_end {
            return Err(Error::Invalid(format!(
                "{tokens} tokens to take back, but {} were accepted",
                self.accepted + self.after_end
            )));
        }
        let after_end = tokens.min(self.after_end);
        self.after_end -= after_end;
        if tokens == after_end {
            return Ok(());
        }
        self.mask = None;
        self.accepted -= tokens - after_end;
        self.matcher.rollback(tokens - after_end).map_err(too_complex)
    }

    fn legal_prefix(&mut self, draft: &[Token]) -> Result<usize> {
        let ids: Vec<u32> = draft.iter().map(|token| token.0).collect();
        self.matcher.validate_tokens(&ids).map_err(too_complex)
    }

    fn forced(&mut self) -> Result<Option<Token>> {
        if self.is_complete() {
            return Ok(None);
        }
        let mask = self.current()?;
        let mut allowed = mask.iter();
        let only = allowed.next().filter(|_| allowed.next().is_none());
        Ok(only.map(Token))
    }
}

fn allows(mask: &SimpleVob, token: Token) -> bool {
    (token.0 as usize) < mask.len() && mask.is_allowed(token.0)
}
