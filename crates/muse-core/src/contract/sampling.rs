//! Choosing a token: sampling settings, what a sequence has said so far, masks and results.

use std::collections::HashMap;

use super::sequence::Token;
use crate::Result;

/// How a request wants its tokens drawn. Order of application: penalties, logit bias, mask,
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
    /// Greedy, nothing else switched on.
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

/// The tokens a sequence holds, as the penalties count them.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// How often each token stands in the completion.
    pub completion: HashMap<Token, u32>,
    /// The tokens of the prompt, each once.
    pub prompt: std::collections::HashSet<Token>,
}

/// Which tokens may come next: one bit a token of the vocabulary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenMask {
    /// Bit `t % 32` of word `t / 32` allows token `t`; tokens past the end are refused.
    pub words: Vec<u32>,
}

impl TokenMask {
    /// Whether `token` may come next.
    pub fn allows(&self, token: Token) -> bool {
        self.words.get(token.0 as usize / 32).is_some_and(|word| word >> (token.0 % 32) & 1 == 1)
    }
}

/// One token to choose.
#[derive(Clone, Copy, Debug)]
pub struct SampleRow<'a> {
    /// Row of the logits buffer.
    pub row: usize,
    /// The request's settings.
    pub sampling: &'a Sampling,
    /// What the sequence held when the step began.
    pub history: &'a History,
    /// Drafted tokens before this row, counted as if they were accepted.
    pub drafted: &'a [Token],
    /// Allowed tokens; none means all.
    pub mask: Option<&'a TokenMask>,
    /// Position that the chosen token will have, for the noise.
    pub position: u32,
    /// How many alternatives to report with log-probabilities; none reports no log-probability.
    pub logprobs: Option<u32>,
}

/// A chosen token.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// The token.
    pub token: Token,
    /// `ln softmax(logits)[token]` before penalties, mask and temperature; 0 when not asked for; not
    /// a number when no score was one.
    pub logprob: f32,
    /// The likeliest tokens with their log-probabilities, best first, as many as asked for.
    pub top: Vec<(Token, f32)>,
}

/// A grammar or a budget that decides which tokens may come. State advances only by `accept`.
pub trait Constraint: Send {
    /// Writes the tokens allowed next.
    fn mask(&mut self, out: &mut TokenMask) -> Result<()>;
    /// Advances by a token that was chosen.
    fn accept(&mut self, token: Token) -> Result<()>;
    /// Takes back the last `tokens` accepted ones.
    fn rollback(&mut self, tokens: usize) -> Result<()>;
    /// How many tokens of `draft` could be accepted in order. The state stays as it was.
    fn legal_prefix(&mut self, draft: &[Token]) -> Result<usize>;
    /// The only token that may come next, when there is just one to say.
    fn forced(&mut self) -> Result<Option<Token>>;
}
