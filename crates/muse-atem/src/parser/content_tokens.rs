//! Which tokens the visible answer consists of. Positions are counted in bytes of the text of all
//! tokens, special tokens spelled.

use std::collections::VecDeque;

use muse_core::contract::ContentToken;

use super::event_buffer::ContentRange;

/// Maps ranges of emitted content to the tokens they came from.
#[derive(Default)]
pub(super) struct ContentTokens {
    /// Tokens that are not settled.
    tokens: VecDeque<Share>,
    /// Index of the first of them.
    first: usize,
    /// How many of them lie before the content emitted so far.
    passed: usize,
}

struct Share {
    /// Position behind the token.
    end: usize,
    /// Bytes of content that came from it.
    content: usize,
}

impl ContentTokens {
    /// A token whose text ends at `end`.
    pub(super) fn push(&mut self, end: usize) {
        self.tokens.push_back(Share { end, content: 0 });
    }

    /// The last token ends at `end`: its last bytes were no character and became U+FFFD.
    pub(super) fn end_last_at(&mut self, end: usize) {
        if let Some(last) = self.tokens.back_mut() {
            last.end = end;
        }
    }

    /// Takes the ranges of newly emitted content. Appends the tokens that end before `settled` and
    /// have a share of the content.
    pub(super) fn settle(
        &mut self,
        ranges: impl Iterator<Item = ContentRange>,
        settled: usize,
        out: &mut Vec<ContentToken>,
    ) {
        ranges.for_each(|range| self.add(range));
        while self.tokens.front().is_some_and(|token| token.end <= settled) {
            let token = self.tokens.pop_front().expect("just seen");
            if token.content > 0 {
                out.push(ContentToken { index: self.first, bytes: token.content });
            }
            self.first += 1;
            self.passed = self.passed.saturating_sub(1);
        }
    }

    fn add(&mut self, range: ContentRange) {
        let (mut at, mut left) = (range.start, range.bytes);
        while left > 0 {
            while self.tokens[self.passed].end <= at {
                self.passed += 1;
            }
            let token = &mut self.tokens[self.passed];
            let part = if range.inserted { left } else { left.min(token.end - at) };
            token.content += part;
            at += part;
            left -= part;
        }
    }
}
