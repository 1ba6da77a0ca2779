//! Finds special tokens that are spelled in text.

use std::ops::Range;

use super::work_counter;
use crate::special_token::SpecialToken;

/// A part of the text.
pub(super) enum TextPart<'a> {
    Text(&'a str),
    Special(SpecialToken),
}

/// The beginning of a special token that the text so far ends with, held back until it is complete
/// or refuted.
#[derive(Default)]
pub(super) struct SpecialTokenSplitter(&'static str);

impl SpecialTokenSplitter {
    /// Splits text at special tokens; holds back its end while a special token begins with it.
    pub(super) fn split(&mut self, text: &str, mut part: impl FnMut(TextPart<'_>)) {
        let mut rest = text;
        while !self.0.is_empty() {
            let Some(character) = rest.chars().next() else { return };
            work_counter::add(self.0.len());
            match prefix_with(self.0, character) {
                Some(spelling) => {
                    self.0 = spelling;
                    rest = &rest[character.len_utf8()..];
                }
                // Special tokens have one `<` each, at their beginning, so none begins within the
                // held text.
                None => part(TextPart::Text(self.take())),
            }
            if let Some(token) = SpecialToken::ALL.into_iter().find(|token| token.text() == self.0)
            {
                self.take();
                part(TextPart::Special(token));
            }
        }
        let mut from = 0;
        while let Some(position) = rest[from..].find('<') {
            let at = from + position;
            work_counter::add(position + 1);
            let candidate = &rest[at..];
            let second = candidate.as_bytes().get(1);
            if second.is_some_and(|byte| *byte != b'|') {
                from = at + 1;
            } else if let Some(token) =
                SpecialToken::ALL.into_iter().find(|m| candidate.starts_with(m.text()))
            {
                part(TextPart::Text(&rest[..at]));
                part(TextPart::Special(token));
                rest = &candidate[token.text().len()..];
                from = 0;
            } else if let Some(token) =
                SpecialToken::ALL.iter().find(|m| m.text().starts_with(candidate))
            {
                self.0 = &token.text()[..candidate.len()];
                rest = &rest[..at];
                break;
            } else {
                from = at + 1;
            }
        }
        work_counter::add(rest.len() - from.min(rest.len()));
        part(TextPart::Text(rest));
    }

    /// Returns the held text, which is text after all.
    pub(super) fn take(&mut self) -> &'static str {
        std::mem::take(&mut self.0)
    }
}

/// `start` followed by `character`, when a special token begins with them.
fn prefix_with(start: &str, character: char) -> Option<&'static str> {
    let longer = start.len() + character.len_utf8();
    let begins = |token: &SpecialToken| {
        let rest = token.text().strip_prefix(start);
        rest.is_some_and(|rest| rest.starts_with(character))
    };
    SpecialToken::ALL.iter().find(|token| begins(token)).map(|token| &token.text()[..longer])
}

/// The parts of a text between the special tokens spelled in it, and between those that are
/// spelled once others are taken out.
pub(super) fn without_special_tokens(text: &str) -> Vec<Range<usize>> {
    let mut parts = Vec::from([Range { start: 0, end: text.len() }]);
    for token in SpecialToken::ALL {
        let plain: String = parts.iter().map(|part| &text[part.clone()]).collect();
        let mut found =
            plain.match_indices(token.text()).map(|(at, _)| at..at + token.text().len());
        let mut next = found.next();
        let (mut kept, mut at) = (Vec::with_capacity(parts.len()), 0);
        for part in parts {
            let end = at + part.len();
            let mut from = at;
            while let Some(special) = next.clone().filter(|special| special.start < end) {
                if special.start > from {
                    kept.push(part.start + from - at..part.start + special.start - at);
                }
                from = special.end.min(end);
                if special.end > end {
                    break;
                }
                next = found.next();
            }
            if end > from {
                kept.push(part.start + from - at..part.start + end - at);
            }
            at = end;
        }
        parts = kept;
    }
    parts
}
