//! Sampling a token: settings, the tokens that penalties count, masks, results and constraints.

use std::collections::HashMap;

use super::sequence::Token;
use crate::Result;

/// Sampling settings of a request. They apply in this order: penalties, logit bias, mask,
/// temperature, top-k, top-p, min-p.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f32,
    /// Keep the `top_k` most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set with at least this probability; 1 keeps all.
    pub top_p: f32,
    /// Keep tokens with at least this share of the best one's probability; 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens seen in prompt or completion; 1
    /// is off.
    pub repetition_penalty: f32,
    /// Subtracted per occurrence in the completion.
    pub frequency_penalty: f32,
    /// Subtracted once when in the completion.
    pub presence_penalty: f32,
    /// Added to the logits of single tokens.
    pub logit_bias: Vec<(Token, f32)>,
    /// Seed of the noise. Noise depends on `(seed, position)` only.
    pub seed: u64,
}

impl Default for Sampling {
    /// Greedy, everything else off.
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

/// The tokens of a sequence, as penalties count them.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// How often each token occurs in the completion.
    pub completion: HashMap<Token, u32>,
    /// The tokens of the prompt.
    pub prompt: std::collections::HashSet<Token>,
}

/// Which tokens may be sampled: one bit per token of the vocabulary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenMask {
    /// Bit `t % 32` of word `t / 32` allows token `t`; tokens past the end are not allowed.
    pub words: Vec<u32>,
}

impl TokenMask {
    /// Whether `token` may be sampled.
    pub fn allows(&self, token: Token) -> bool {
        self.words.get(token.0 as usize / 32).is_some_and(|word| word >> (token.0 % 32) & 1 == 1)
    }
}

/// One token to sample.
#[derive(Clone, Copy, Debug)]
pub struct SampleRow<'a> {
    /// Row of the logits buffer.
    pub row: usize,
    /// The request's settings.
    pub sampling: &'a Sampling,
    /// Tokens of the sequence when the step began.
    pub history: &'a History,
    /// Draft tokens before this row, which count as if they were accepted.
    pub drafted: &'a [Token],
    /// Allowed tokens; none means all.
    pub mask: Option<&'a TokenMask>,
    /// Position that the sampled token will have, for the noise.
    pub position: u32,
    /// How many alternatives to report with their log-probabilities; none reports no
    /// log-probability.
    pub logprobs: Option<u32>,
}

/// A sampled token.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// The token.
    pub token: Token,
    /// `ln softmax(logits)[token]` before penalties, mask and temperature; 0 when not requested;
    /// NaN when all logits were.
    pub logprob: f32,
    /// The likeliest tokens with their log-probabilities, best first, as many as requested.
    pub top: Vec<(Token, f32)>,
}

/// A grammar or a budget that decides which tokens may be sampled. Its state advances only by
/// `accept`.
pub trait Constraint: Send {
    /// Writes the tokens that may come next.
    fn mask(&mut self, out: &mut TokenMask) -> Result<()>;
    /// Advances by a token.
    fn accept(&mut self, token: Token) -> Result<()>;
    /// Reverts the last `tokens` accepted tokens.
    fn rollback(&mut self, tokens: usize) -> Result<()>;
    /// How many leading tokens of `draft` could be accepted. The state does not change.
    fn legal_prefix(&mut self, draft: &[Token]) -> Result<usize>;
    /// The token that must come next, if there is only one.
    fn forced(&mut self) -> Result<Option<Token>>;
}
