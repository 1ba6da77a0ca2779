//! Which tokens the visible answer consists of, for their log-probabilities.

use std::collections::VecDeque;

use muse_core::contract::{Channel, ContentToken, OutputParser, Sampled};

use super::AnswerToken;

/// Assigns the bytes of the visible answer to the tokens that account for them.
#[derive(Default)]
pub(super) struct ContentTokens {
    /// How many tokens were pushed.
    pushed: usize,
    /// Pushed tokens that may be content, with their indices.
    candidates: VecDeque<(usize, Sampled)>,
    /// Bytes of the content that no token was assigned to.
    bytes: VecDeque<u8>,
    /// Shares of the content whose bytes have not come.
    shares: VecDeque<ContentToken>,
    settled: Vec<ContentToken>,
}

impl ContentTokens {
    /// Takes a token that was pushed to the parser, and its channel.
    pub(super) fn push(&mut self, sampled: Sampled, channel: Channel) {
        // Reasoning never becomes content; headers and calls may.
        if channel != Channel::Reasoning {
            self.candidates.push_back((self.pushed, sampled));
        }
        self.pushed += 1;
    }

    /// Takes more of the content.
    pub(super) fn push_text(&mut self, text: &str) {
        self.bytes.extend(text.as_bytes());
    }

    /// The tokens whose part of the content is settled and was pushed.
    pub(super) fn settle(&mut self, parser: &mut dyn OutputParser) -> Vec<AnswerToken> {
        parser.content_tokens(&mut self.settled);
        self.shares.extend(self.settled.drain(..));
        let mut tokens = Vec::new();
        while let Some(share) = self.shares.front()
            && share.bytes <= self.bytes.len()
        {
            let ContentToken { index, bytes } = *share;
            self.shares.pop_front();
            while self.candidates.front().is_some_and(|(candidate, _)| *candidate < index) {
                self.candidates.pop_front();
            }
            let bytes = self.bytes.drain(..bytes).collect();
            if let Some((_, sampled)) = self.candidates.pop_front_if(|(i, _)| *i == index) {
                tokens.push(AnswerToken { sampled, bytes });
            }
        }
        tokens
    }
}
