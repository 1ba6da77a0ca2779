//! What completions took, one by one and all choices of a request together.

use muse_core::contract::{Rates, Timings, Usage};

/// What a completion took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatUsage {
    /// Tokens, as the engine counts them.
    pub tokens: Usage,
    /// Tokens of the completion that are reasoning; 0 for completions that are not parsed.
    pub reasoning: u32,
    /// Times.
    pub timings: Timings,
}

/// What all choices of a request took together. They run side by side and share their prompt, which
/// counts once; of times the longest counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestUsage {
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Those found in the cache.
    pub cached: u32,
    /// Tokens generated.
    pub completion: u32,
    /// Those that are reasoning.
    pub reasoning: u32,
    /// Draft tokens verified.
    pub drafted: u32,
    /// Draft tokens accepted.
    pub accepted: u32,
    /// The longest of each time.
    pub timings: Timings,
    /// Rates of all choices together.
    pub rates: Rates,
}

impl ChatUsage {
    /// Rates of this completion alone.
    pub fn rates(&self) -> Rates {
        Rates::of([(&self.tokens, &self.timings)])
    }
}

impl RequestUsage {
    /// Adds up the choices of a request.
    pub fn new(choices: &[ChatUsage]) -> Self {
        let sum = |count: fn(&ChatUsage) -> u32| choices.iter().map(count).sum();
        let (prompt, cached) =
            choices.first().map_or((0, 0), |first| (first.tokens.prompt, first.tokens.cached));
        Self {
            prompt,
            cached,
            completion: sum(|c| c.tokens.completion),
            reasoning: sum(|c| c.reasoning),
            drafted: sum(|c| c.tokens.drafted()),
            accepted: sum(|c| c.tokens.accepted()),
            timings: choices.iter().map(|c| c.timings).fold(Timings::default(), Timings::max),
            rates: Rates::of(choices.iter().map(|c| (&c.tokens, &c.timings))),
        }
    }
}
