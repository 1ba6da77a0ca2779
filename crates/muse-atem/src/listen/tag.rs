//! The tags of a call, in their one canonical spelling.

use super::work;
use crate::mark::Mark;

/// Longest name of a tool or parameter in a tag when no declared name is longer, in bytes.
const MAX_NAME: usize = 4096;

const INVOKE: &str = "<atem:invoke";
const INVOKE_NAME: &str = "<atem:invoke name=\"";
const PARAMETER_NAME: &str = "<atem:parameter name=\"";

const FIXED: [(&str, Tag); 4] = [
    ("<atem:function_calls>", Tag::OpenBlock),
    ("</atem:function_calls>", Tag::CloseBlock),
    ("</atem:invoke>", Tag::CloseInvoke),
    ("</atem:parameter>", Tag::CloseParameter),
];

/// A tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    OpenBlock,
    CloseBlock,
    OpenInvoke(String),
    /// Begins like an invoke but is none.
    BadInvoke,
    CloseInvoke,
    OpenParameter(String),
    CloseParameter,
}

/// What text that begins with `<` is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A tag of so many bytes.
    Tag(Tag, usize),
    /// The beginning of a tag, perhaps.
    Partial,
    /// Plain text.
    Text,
}

/// Looks at tags. Remembers how far it looked into a name, so that a name that comes letter by
/// letter is looked at once.
pub(super) struct Tags {
    max_name: usize,
    looked: usize,
}

impl Tags {
    pub(super) fn new(longest_name: usize) -> Self {
        Self { max_name: longest_name.max(MAX_NAME), looked: 0 }
    }

    /// What `text` begins with; `text` begins with `<` and grows only at its end until the answer
    /// is other than [`Found::Partial`].
    pub(super) fn find(&mut self, text: &str) -> Found {
        work::looked_at(text.len().min(PARAMETER_NAME.len()));
        let found = self.look(text);
        if found != Found::Partial {
            self.looked = 0;
        }
        found
    }

    fn look(&mut self, text: &str) -> Found {
        for (spelling, tag) in FIXED {
            if text.starts_with(spelling) {
                return Found::Tag(tag, spelling.len());
            }
            if spelling.starts_with(text) {
                return Found::Partial;
            }
        }
        if text.starts_with(INVOKE_NAME) {
            return self.invoke(text);
        }
        if text.starts_with(PARAMETER_NAME) {
            return self.parameter(text);
        }
        if INVOKE_NAME.starts_with(text) || PARAMETER_NAME.starts_with(text) {
            return Found::Partial;
        }
        match text.strip_prefix(INVOKE).and_then(|rest| rest.chars().next()) {
            Some(letter) if !letter.is_alphanumeric() && letter != '_' => {
                Found::Tag(Tag::BadInvoke, INVOKE.len())
            }
            _ => Found::Text,
        }
    }

    /// An invoke from its name on. A stray message mark inside the name, or in place of the name's
    /// end, is a known fumble of the model and left out.
    fn invoke(&mut self, text: &str) -> Found {
        let bad = Found::Tag(Tag::BadInvoke, INVOKE.len());
        let stray = Mark::Message.text();
        let from = self.looked.max(INVOKE_NAME.len());
        let mut at = from;
        while let Some(letter) = text[at..].chars().next() {
            self.looked = at;
            work::looked_at(letter.len_utf8());
            if at - INVOKE_NAME.len() > self.max_name {
                return bad;
            }
            let rest = &text[at..];
            let name = &text[INVOKE_NAME.len()..at];
            match letter {
                '"' if rest.starts_with("\">") => return opened_invoke(name, at + 2),
                '"' if rest[1..].starts_with(stray) => {
                    let end = at + 1 + stray.len();
                    return match text[end..].chars().next() {
                        None => Found::Partial,
                        Some('>') => opened_invoke(name, end + 1),
                        Some(_) => opened_invoke(name, end),
                    };
                }
                '"' if rest.len() == 1 || stray.starts_with(&rest[1..]) => return Found::Partial,
                '<' if rest.starts_with(stray) => match rest[stray.len()..].chars().next() {
                    None => return Found::Partial,
                    Some(next) if next == '<' || next.is_whitespace() => {
                        return opened_invoke(name, at + stray.len());
                    }
                    Some(_) => at += stray.len(),
                },
                '<' if stray.starts_with(rest) => return Found::Partial,
                '"' | '<' => return bad,
                letter if letter.is_whitespace() => return bad,
                letter => at += letter.len_utf8(),
            }
        }
        self.looked = at;
        Found::Partial
    }

    fn parameter(&mut self, text: &str) -> Found {
        let from = self.looked.max(PARAMETER_NAME.len());
        let place = text[from..].find(['"', '<', '\n']);
        work::looked_at(place.unwrap_or(text.len() - from));
        let Some(length) = place else {
            self.looked = text.len();
            let long = text.len() - PARAMETER_NAME.len() > self.max_name;
            return if long { Found::Text } else { Found::Partial };
        };
        let end = from + length;
        let name = &text[PARAMETER_NAME.len()..end];
        match text.as_bytes().get(end..end + 2) {
            Some(b"\">") if !name.is_empty() && name.len() <= self.max_name => {
                Found::Tag(Tag::OpenParameter(name.to_owned()), end + 2)
            }
            None if text[end..].starts_with('"') => {
                self.looked = end;
                Found::Partial
            }
            _ => Found::Text,
        }
    }
}

fn opened_invoke(name: &str, length: usize) -> Found {
    let name = name.replace(Mark::Message.text(), "");
    if name.is_empty() {
        return Found::Tag(Tag::BadInvoke, INVOKE.len());
    }
    Found::Tag(Tag::OpenInvoke(name), length)
}
