//! Two grammars that are small enough to check by eye.

use muse_core::contract::{Constraint, Token, TokenMask};
use muse_core::{Error, Result};

/// Only even tokens.
#[derive(Debug)]
pub struct EvenTokens {
    vocab: usize,
    accepted: usize,
}

impl EvenTokens {
    /// Over this vocabulary.
    pub fn new(vocab: usize) -> Self {
        Self { vocab, accepted: 0 }
    }
}

fn write_mask(vocab: usize, out: &mut TokenMask, allows: impl Fn(u32) -> bool) {
    out.words.clear();
    out.words.resize(vocab.div_ceil(32), 0);
    for id in (0..vocab as u32).filter(|&id| allows(id)) {
        out.words[id as usize / 32] |= 1 << (id % 32);
    }
}

impl Constraint for EvenTokens {
    fn mask(&mut self, out: &mut TokenMask) -> Result<()> {
        write_mask(self.vocab, out, |id| id % 2 == 0);
        Ok(())
    }

    fn accept(&mut self, token: Token) -> Result<()> {
        if token.0 % 2 == 1 {
            return Err(Error::Invalid(format!("token {} is odd, expected an even one", token.0)));
        }
        self.accepted += 1;
        Ok(())
    }

    fn rollback(&mut self, tokens: usize) -> Result<()> {
        assert!(tokens <= self.accepted, "no more tokens are reverted than were accepted");
        self.accepted -= tokens;
        Ok(())
    }

    fn legal_prefix(&mut self, draft: &[Token]) -> Result<usize> {
        Ok(draft.iter().take_while(|token| token.0 % 2 == 0).count())
    }

    fn forced(&mut self) -> Result<Option<Token>> {
        Ok(None)
    }
}

/// After `free` tokens of any kind only the tokens of a script, repeated.
#[derive(Debug)]
pub struct Forced {
    vocab: usize,
    free: usize,
    script: Vec<Token>,
    accepted: usize,
}

impl Forced {
    /// Over this vocabulary.
    pub fn new(vocab: usize, free: usize, script: Vec<Token>) -> Self {
        Self { vocab, free, script, accepted: 0 }
    }

    fn next(&self, accepted: usize) -> Option<Token> {
        let scripted = accepted.checked_sub(self.free)?;
        Some(self.script[scripted % self.script.len()])
    }
}

impl Constraint for Forced {
    fn mask(&mut self, out: &mut TokenMask) -> Result<()> {
        let next = self.next(self.accepted);
        write_mask(self.vocab, out, |id| next.is_none_or(|token| token.0 == id));
        Ok(())
    }

    fn accept(&mut self, token: Token) -> Result<()> {
        if let Some(next) = self.next(self.accepted)
            && next != token
        {
            return Err(Error::Invalid(format!("token {}, expected {}", token.0, next.0)));
        }
        self.accepted += 1;
        Ok(())
    }

    fn rollback(&mut self, tokens: usize) -> Result<()> {
        assert!(tokens <= self.accepted, "no more tokens are reverted than were accepted");
        self.accepted -= tokens;
        Ok(())
    }

    fn legal_prefix(&mut self, draft: &[Token]) -> Result<usize> {
        let fits = |(i, token): &(usize, &Token)| {
            self.next(self.accepted + i).is_none_or(|next| next == **token)
        };
        Ok(draft.iter().enumerate().take_while(fits).count())
    }

    fn forced(&mut self) -> Result<Option<Token>> {
        Ok(self.next(self.accepted))
    }
}
