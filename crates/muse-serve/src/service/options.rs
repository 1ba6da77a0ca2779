//! What an operator sets for all requests.

/// Options of the services.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceOptions {
    /// Bounds on what one request may ask for.
    pub limits: RequestLimits,
    /// Whether tool calls are sent in deltas while they are generated, where a request does not say
    /// so itself. Whole calls are the default: a message from which no call can be read becomes
    /// content, which it cannot once a part of the call was sent.
    pub growing_tool_calls: bool,
}

/// Bounds on what one request may ask for, so that none delays all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// The most answers to one request. A request for more is refused.
    pub max_choices: u32,
    /// The most tokens of one answer; none leaves it to the model's positions. A request for more
    /// gets this many.
    pub max_tokens: Option<u32>,
    /// The highest priority. A higher one counts as this.
    pub max_priority: i32,
}

impl Default for RequestLimits {
    /// 16 answers, as many tokens as there are positions, and no priority above others.
    fn default() -> Self {
        Self { max_choices: 16, max_tokens: None, max_priority: 0 }
    }
}

impl RequestLimits {
    /// The tokens that an answer may have.
    pub(super) fn tokens(&self, requested: Option<u32>) -> Option<u32> {
        requested.into_iter().chain(self.max_tokens).min()
    }

    /// The priority of a request.
    pub(super) fn priority(&self, requested: i32) -> i32 {
        requested.min(self.max_priority)
    }
}
