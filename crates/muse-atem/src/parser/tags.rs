//! The tags of a tool call, in their one canonical spelling.

use super::work_counter;
use crate::special_token::SpecialToken;

/// The longest name of a tool or parameter in a tag, in bytes, unless a declared name is longer.
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
    /// Begins like an invoke, but has no readable name.
    BadInvoke,
    CloseInvoke,
    OpenParameter(String),
    CloseParameter,
}

/// What text that begins with `<` is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// A tag of this many bytes.
    Tag(Tag, usize),
    /// Possibly the beginning of a tag.
    Partial,
    /// Plain text.
    Text,
}

/// Recognizes tags. Remembers how far a name was scanned, so that a name that comes byte by byte is
/// scanned once.
pub(super) struct TagScanner {
    max_name: usize,
    scanned: usize,
}

impl TagScanner {
    pub(super) fn new(longest_name: usize) -> Self {
        Self { max_name: longest_name.max(MAX_NAME), scanned: 0 }
    }

    /// What `text` begins with. `text` begins with `<` and grows only at its end until the result
    /// is not [`Scan::Partial`].
    pub(super) fn scan(&mut self, text: &str) -> Scan {
        work_counter::add(text.len().min(PARAMETER_NAME.len()));
        let found = self.scan_text(text);
        if found != Scan::Partial {
            self.scanned = 0;
        }
        found
    }

    fn scan_text(&mut self, text: &str) -> Scan {
        for (spelling, tag) in FIXED {
            if text.starts_with(spelling) {
                return Scan::Tag(tag, spelling.len());
            }
            if spelling.starts_with(text) {
                return Scan::Partial;
            }
        }
        if text.starts_with(INVOKE_NAME) {
            return self.invoke(text);
        }
        if text.starts_with(PARAMETER_NAME) {
            return self.parameter(text);
        }
        if INVOKE_NAME.starts_with(text) || PARAMETER_NAME.starts_with(text) {
            return Scan::Partial;
        }
        match text.strip_prefix(INVOKE).and_then(|rest| rest.chars().next()) {
            Some(character) if !character.is_alphanumeric() && character != '_' => {
                Scan::Tag(Tag::BadInvoke, INVOKE.len())
            }
            _ => Scan::Text,
        }
    }

    /// An invoke, from its name on. Models sometimes write `<|message|>` inside the name or in
    /// position of the end of the name: it is removed.
    fn invoke(&mut self, text: &str) -> Scan {
        let broken = Scan::Tag(Tag::BadInvoke, INVOKE.len());
        let stray = SpecialToken::Message.text();
        let from = self.scanned.max(INVOKE_NAME.len());
        let mut at = from;
        while let Some(character) = text[at..].chars().next() {
            self.scanned = at;
            work_counter::add(character.len_utf8());
            if at - INVOKE_NAME.len() > self.max_name {
                return broken;
            }
            let rest = &text[at..];
            let name = &text[INVOKE_NAME.len()..at];
            match character {
                '"' if rest.starts_with("\">") => return opened_invoke(name, at + 2),
                '"' if rest[1..].starts_with(stray) => {
                    let end = at + 1 + stray.len();
                    return match text[end..].chars().next() {
                        None => Scan::Partial,
                        Some('>') => opened_invoke(name, end + 1),
                        Some(_) => opened_invoke(name, end),
                    };
                }
                '"' if rest.len() == 1 || stray.starts_with(&rest[1..]) => return Scan::Partial,
                '<' if rest.starts_with(stray) => match rest[stray.len()..].chars().next() {
                    None => return Scan::Partial,
                    Some(next) if next == '<' || next.is_whitespace() => {
                        return opened_invoke(name, at + stray.len());
                    }
                    Some(_) => at += stray.len(),
                },
                '<' if stray.starts_with(rest) => return Scan::Partial,
                '"' | '<' => return broken,
                character if character.is_whitespace() => return broken,
                character => at += character.len_utf8(),
            }
        }
        self.scanned = at;
        Scan::Partial
    }

    fn parameter(&mut self, text: &str) -> Scan {
        let from = self.scanned.max(PARAMETER_NAME.len());
        let position = text[from..].find(['"', '<', '\n']);
        work_counter::add(position.unwrap_or(text.len() - from));
        let Some(length) = position else {
            self.scanned = text.len();
            let long = text.len() - PARAMETER_NAME.len() > self.max_name;
            return if long { Scan::Text } else { Scan::Partial };
        };
        let end = from + length;
        let name = &text[PARAMETER_NAME.len()..end];
        match text.as_bytes().get(end..end + 2) {
            Some(b"\">") if !name.is_empty() && name.len() <= self.max_name => {
                Scan::Tag(Tag::OpenParameter(name.to_owned()), end + 2)
            }
            None if text[end..].starts_with('"') => {
                self.scanned = end;
                Scan::Partial
            }
            _ => Scan::Text,
        }
    }
}

fn opened_invoke(name: &str, length: usize) -> Scan {
    let name = name.replace(SpecialToken::Message.text(), "");
    if name.is_empty() {
        return Scan::Tag(Tag::BadInvoke, INVOKE.len());
    }
    Scan::Tag(Tag::OpenInvoke(name), length)
}
