//! A budget of reasoning tokens: when it is used up, the reasoning message is closed with the
//! model's own special tokens and the answer follows.

use std::sync::Arc;

use muse_core::contract::{Constraint, Conversation, PromptPart, Token, TokenMask, Tokenizer};
use muse_core::{Error, Result};

use crate::answer_prefix::AnswerPrefix;
use crate::encode::encode;
use crate::special_token::SpecialToken;

const TO_SELF: &str = " to=self";

/// Counts the tokens of reasoning; may wrap another constraint.
pub struct ReasoningBudget {
    budget: u32,
    tokenizer: Arc<dyn Tokenizer>,
    start: Token,
    message: Token,
    ends: [Token; 3],
    /// The tokens that close the reasoning message.
    closing: Vec<Token>,
    accepted: Vec<Token>,
    /// The state before each accepted token, and the current one at the end.
    states: Vec<BudgetState>,
    inner: Option<Box<dyn Constraint>>,
}

#[derive(Clone, Copy)]
struct BudgetState {
    position: Position,
    /// Reasoning tokens so far, over all messages.
    reasoning: u32,
    /// How many tokens were accepted before the current header.
    header: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Position {
    Header,
    Reasoning,
    /// Forced closing; the next token is the one at this index of `closing`.
    Closing(usize),
    Other,
}

impl ReasoningBudget {
    /// At most `budget` tokens of reasoning in an answer to `conversation`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the vocabulary lacks a special token.
    pub fn new(
        budget: u32,
        conversation: &Conversation,
        tokenizer: Arc<dyn Tokenizer>,
        inner: Option<Box<dyn Constraint>>,
    ) -> Result<Self> {
        let mut closing = vec![
            PromptPart::Special(SpecialToken::EndOfMessage.text()),
            PromptPart::Special(SpecialToken::Start.text()),
        ];
        if conversation.tools.is_empty() {
            closing.push(PromptPart::Text("assistant to=user".to_owned()));
            closing.push(PromptPart::Special(SpecialToken::Message.text()));
        } else {
            // Without a recipient, so that a call stays possible.
            closing.push(PromptPart::Text("assistant".to_owned()));
        }
        let token = |special: SpecialToken| special.id(tokenizer.as_ref());
        let position = match AnswerPrefix::of(&conversation.answer_prefix) {
            None => Position::Header,
            Some(prefix) if prefix.is_reasoning() => Position::Reasoning,
            Some(_) => Position::Other,
        };
        Ok(Self {
            budget,
            start: token(SpecialToken::Start)?,
            message: token(SpecialToken::Message)?,
            ends: [
                token(SpecialToken::EndOfMessage)?,
                token(SpecialToken::EndOfTurn)?,
                token(SpecialToken::EndOfText)?,
            ],
            closing: encode(&closing, tokenizer.as_ref())?,
            tokenizer,
            accepted: Vec::new(),
            states: vec![BudgetState { position, reasoning: 0, header: 0 }],
            inner,
        })
    }

    fn state(&self) -> BudgetState {
        *self.states.last().expect("the first state is never taken back")
    }

    /// The token that the budget forces here.
    fn required(&self) -> Option<Token> {
        let state = self.state();
        match state.position {
            Position::Closing(at) => Some(self.closing[at]),
            Position::Reasoning if state.reasoning >= self.budget => Some(self.closing[0]),
            _ => None,
        }
    }

    /// The token that would begin reasoning again after the budget is used up.
    fn forbidden(&self) -> Option<Token> {
        let state = self.state();
        if state.position != Position::Header || state.reasoning < self.budget {
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

    /// Text of the current header.
    fn header(&self) -> String {
        let mut bytes = Vec::new();
        for token in &self.accepted[self.state().header..] {
            self.tokenizer.decode(*token, &mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn allows(&self, token: Token) -> bool {
        self.required().is_none_or(|required| required == token) && self.forbidden() != Some(token)
    }

    fn push(&mut self, token: Token) {
        let mut state = self.state();
        state.position = match state.position {
            _ if self.required() == Some(token) => {
                let at = if let Position::Closing(at) = state.position { at + 1 } else { 1 };
                match (at < self.closing.len(), token == self.message) {
                    (true, _) => Position::Closing(at),
                    (false, true) => Position::Other,
                    (false, false) => Position::Header,
                }
            }
            _ if token == self.start => Position::Header,
            _ if self.ends.contains(&token) => Position::Other,
            Position::Header if token == self.message => {
                let header = self.header();
                let recipient = header.strip_prefix("assistant").unwrap_or(&header);
                if recipient == TO_SELF { Position::Reasoning } else { Position::Other }
            }
            // Reasoning can also be left by a header without `<|start|>`.
            Position::Reasoning if token == self.message => Position::Other,
            Position::Reasoning => {
                state.reasoning += 1;
                Position::Reasoning
            }
            position => position,
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

impl Constraint for ReasoningBudget {
    fn mask(&mut self, out: &mut TokenMask) -> Result<()> {
        let words = self.tokenizer.vocab_size().div_ceil(32);
        if let Some(token) = self.required() {
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
        match (self.required(), &mut self.inner) {
            (Some(token), _) => Ok(Some(token)),
            (None, Some(inner)) => inner.forced(),
            (None, None) => Ok(None),
        }
    }
}
