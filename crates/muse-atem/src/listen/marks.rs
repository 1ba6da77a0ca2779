//! Marks in text: where they are letters, they are found here.

use super::work;
use crate::mark::Mark;

/// A part of text.
pub(super) enum Split<'a> {
    Text(&'a str),
    Mark(Mark),
}

/// What the text so far ends with, when that may become a mark: a mark's first letters.
#[derive(Default)]
pub(super) struct Held(&'static str);

impl Held {
    /// Cuts text at marks and holds back its end while that may become one.
    pub(super) fn split(&mut self, text: &str, mut part: impl FnMut(Split<'_>)) {
        let mut rest = text;
        while !self.0.is_empty() {
            let Some(letter) = rest.chars().next() else { return };
            work::looked_at(self.0.len());
            match mark_with(self.0, letter) {
                Some(spelling) => {
                    self.0 = spelling;
                    rest = &rest[letter.len_utf8()..];
                }
                // No mark has a second bracket, so none begins within what is held.
                None => part(Split::Text(self.take())),
            }
            if let Some(mark) = Mark::ALL.into_iter().find(|mark| mark.text() == self.0) {
                self.take();
                part(Split::Mark(mark));
            }
        }
        let mut from = 0;
        while let Some(place) = rest[from..].find('<') {
            let at = from + place;
            work::looked_at(place + 1);
            let candidate = &rest[at..];
            let second = candidate.as_bytes().get(1);
            if second.is_some_and(|byte| *byte != b'|') {
                from = at + 1;
            } else if let Some(mark) =
                Mark::ALL.into_iter().find(|m| candidate.starts_with(m.text()))
            {
                part(Split::Text(&rest[..at]));
                part(Split::Mark(mark));
                rest = &candidate[mark.text().len()..];
                from = 0;
            } else if let Some(mark) = Mark::ALL.iter().find(|m| m.text().starts_with(candidate)) {
                self.0 = &mark.text()[..candidate.len()];
                rest = &rest[..at];
                break;
            } else {
                from = at + 1;
            }
        }
        work::looked_at(rest.len() - from.min(rest.len()));
        part(Split::Text(rest));
    }

    /// What is held, which is text after all.
    pub(super) fn take(&mut self) -> &'static str {
        std::mem::take(&mut self.0)
    }
}

/// `start` and `letter`, when a mark begins with them.
fn mark_with(start: &str, letter: char) -> Option<&'static str> {
    let longer = start.len() + letter.len_utf8();
    let begins = |mark: &Mark| {
        let rest = mark.text().strip_prefix(start);
        rest.is_some_and(|rest| rest.starts_with(letter))
    };
    Mark::ALL.iter().find(|mark| begins(mark)).map(|mark| &mark.text()[..longer])
}
