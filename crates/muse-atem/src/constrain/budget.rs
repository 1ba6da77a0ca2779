//! A budget of reasoning: when it is used up, the channel is closed with the model's own marks and
//! the answer follows.

use std::sync::Arc;

use muse_core::contract::{Constraint, Conversation, PromptPart, Token, TokenMask, Tokenizer};
use muse_core::{Error, Result};

use super::native::mark;
use crate::encode::encode;
use crate::mark::Mark;

const TO_SELF: &str = " to=self";

/// Counts the tokens of reasoning; beside it another constraint may hold.
pub struct ThinkingBudget {
    budget: u32,
    tokenizer: Arc<dyn Tokenizer>,
    start: Token,
    message: Token,
    ends: [Token; 3],
    /// What closes the channel.
    closing: Vec<Token>,
    accepted: Vec<Token>,
    /// One entry more than tokens accepted; the last is where we are.
    states: Vec<State>,
    inner: Option<Box<dyn Constraint>>,
}

#[derive(Clone, Copy)]
struct State {
    place: Place,
    /// Tokens of reasoning so far, over all messages.
    thought: u32,
    /// Tokens accepted before the header at hand.
    header: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Header,
    Think,
    /// At that token of the closing.
    Closing(usize),
    Other,
}

impl ThinkingBudget {
    /// At most `budget` tokens of reasoning in an answer to `conversation`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the vocabulary lacks a mark.
    pub fn new(
        budget: u32,
        conversation: &Conversation,
        tokenizer: Arc<dyn Tokenizer>,
        inner: Option<Box<dyn Constraint>>,
    ) -> Result<Self> {
        let mut closing = vec![
            PromptPart::Special(Mark::EndOfMessage.text()),
            PromptPart::Special(Mark::Start.text()),
        ];
        if conversation.tools.is_empty() {
            closing.push(PromptPart::Text("assistant to=user".to_owned()));
            closing.push(PromptPart::Special(Mark::Message.text()));
        } else {
            // A call must stay possible, so only the channel is closed.
            closing.push(PromptPart::Text("assistant".to_owned()));
        }
        let token = |which| mark(which, tokenizer.as_ref());
        let place =
            if conversation.answer_prefix.is_empty() { Place::Header } else { Place::Other };
        Ok(Self {
            budget,
            start: token(Mark::Start)?,
            message: token(Mark::Message)?,
            ends: [token(Mark::EndOfMessage)?, token(Mark::EndOfTurn)?, token(Mark::EndOfText)?],
            closing: encode(&closing, tokenizer.as_ref())?,
            tokenizer,
            accepted: Vec::new(),
            states: vec![State { place, thought: 0, header: 0 }],
            inner,
        })
    }

    fn state(&self) -> State {
        *self.states.last().expect("the first state is never taken back")
    }

    /// The token that the budget demands here.
    fn demanded(&self) -> Option<Token> {
        let state = self.state();
        match state.place {
            Place::Closing(at) => Some(self.closing[at]),
            Place::Think if state.thought >= self.budget => Some(self.closing[0]),
            _ => None,
        }
    }

    /// The token that would begin reasoning again when the budget is used up.
    fn forbidden(&self) -> Option<Token> {
        let state = self.state();
        if state.place != Place::Header || state.thought < self.budget {
            return None;
        }
        let header = self.header();
        let role = if state.header > 0 { "assistant" } else { "" };
        let rest = format!("{role}{TO_SELF}").strip_prefix(&header)?.to_owned();
        let mut tokens = Vec::new();
        self.tokenizer.encode(&rest, &mut tokens);
        match tokens.as_slice() {
            [last] => Some(*last),
            _ => None,
        }
    }

    /// Text of the header at hand.
    fn header(&self) -> String {
        let mut bytes = Vec::new();
        for token in &self.accepted[self.state().header..] {
            self.tokenizer.decode(*token, &mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn allows(&self, token: Token) -> bool {
        self.demanded().is_none_or(|demanded| demanded == token) && self.forbidden() != Some(token)
    }

    fn push(&mut self, token: Token) {
        let mut state = self.state();
        state.place = match state.place {
            _ if self.demanded() == Some(token) => {
                let at = if let Place::Closing(at) = state.place { at + 1 } else { 1 };
                match (at < self.closing.len(), token == self.message) {
                    (true, _) => Place::Closing(at),
                    (false, true) => Place::Other,
                    (false, false) => Place::Header,
                }
            }
            _ if token == self.start => Place::Header,
            _ if self.ends.contains(&token) => Place::Other,
            Place::Header if token == self.message => {
                let header = self.header();
                let recipient = header.strip_prefix("assistant").unwrap_or(&header);
                if recipient == TO_SELF { Place::Think } else { Place::Other }
            }
            // A channel can also be left by a header without a start mark.
            Place::Think if token == self.message => Place::Other,
            Place::Think => {
                state.thought += 1;
                Place::Think
            }
            place => place,
        };
        self.accepted.push(token);
        if token == self.start {
            state.header = self.accepted.len();
        }
        self.states.push(state);
    }

    fn pop(&mut self, tokens: usize) {
        self.accepted.truncate(self.accepted.len() - tokens);
        self.states.truncate(self.states.len() - tokens);
    }
}

impl Constraint for ThinkingBudget {
    fn mask(&mut self, out: &mut TokenMask) -> Result<()> {
        let words = self.tokenizer.vocab_size().div_ceil(32);
        if let Some(token) = self.demanded() {
            out.words.clear();
            out.words.resize(words, 0);
            out.words[token.0 as usize / 32] |= 1 << (token.0 % 32);
            return Ok(());
        }
        match &mut self.inner {
            Some(inner) => inner.mask(out)?,
            None => {
                out.words.clear();
                out.words.resize(words, u32::MAX);
            }
        }
        if let Some(token) = self.forbidden() {
            out.words[token.0 as usize / 32] &= !(1 << (token.0 % 32));
        }
        Ok(())
    }

    fn accept(&mut self, token: Token) -> Result<()> {
        if !self.allows(token) {
            return Err(Error::Invalid(format!(
                "token {} is not allowed: the budget of {} reasoning tokens is used up",
                token.0, self.budget
            )));
        }
        if let Some(inner) = &mut self.inner {
            inner.accept(token)?;
        }
        self.push(token);
        Ok(())
    }

    fn rollback(&mut self, tokens: usize) -> Result<()> {
        if tokens > self.accepted.len() {
            return Err(Error::Invalid(format!(
                "{tokens} tokens to take back, but {} were accepted",
                self.accepted.len()
            )));
        }
        if let Some(inner) = &mut self.inner {
            inner.rollback(tokens)?;
        }
        self.pop(tokens);
        Ok(())
    }

    fn legal_prefix(&mut self, draft: &[Token]) -> Result<usize> {
        let mut legal = 0;
        for token in draft {
            if !self.allows(*token) {
                break;
            }
            self.push(*token);
            legal += 1;
        }
        self.pop(legal);
        match &mut self.inner {
            Some(inner) => inner.legal_prefix(&draft[..legal]),
            None => Ok(legal),
        }
    }

    fn forced(&mut self) -> Result<Option<Token>> {
        match (self.demanded(), &mut self.inner) {
            (Some(token), _) => Ok(Some(token)),
            (None, Some(inner)) => inner.forced(),
            (None, None) => Ok(None),
        }
    }
}
