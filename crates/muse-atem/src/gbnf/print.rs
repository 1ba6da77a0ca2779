//! Prints rules in the Lark syntax.

use std::fmt::Write;

use super::parse::{Atom, Item, Sequence};

const STRING: &str = "a String takes all";

/// Prints rules under names of one letter and their number: a large one makes terminals.
pub(super) struct Print {
    pub(super) letter: char,
}

impl Print {
    pub(super) fn alternatives(&self, alternatives: &[Sequence], out: &mut String) {
        for (i, sequence) in alternatives.iter().enumerate() {
            if i > 0 {
                out.push_str(" | ");
            }
            if sequence.is_empty() {
                out.push_str("\"\"");
            }
            for (i, item) in sequence.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                self.item(item, out);
            }
        }
    }

    fn item(&self, item: &Item, out: &mut String) {
        match &item.atom {
            Atom::Literal(text) => self.literal(text, item, out),
            Atom::Class { negated, ranges } => class(*negated, ranges, out),
            Atom::Rule(number) => write!(out, "{}{number}", self.letter).expect(STRING),
            Atom::Group(alternatives) => {
                out.push_str("( ");
                self.alternatives(alternatives, out);
                out.push_str(" )");
            }
        }
        match (item.min, item.max) {
            (1, Some(1)) => {}
            (0, None) => out.push('*'),
            (1, None) => out.push('+'),
            (0, Some(1)) => out.push('?'),
            (min, None) => write!(out, "{{{min},}}").expect(STRING),
            (min, Some(max)) => write!(out, "{{{min},{max}}}").expect(STRING),
        }
    }

    fn literal(&self, text: &str, item: &Item, out: &mut String) {
        let quote = |text: &str| crate::json::Json::String(text.to_owned()).to_compact();
        let is_one = text.chars().count() == 1;
        if self.letter == 'R' || text.is_empty() || is_one {
            out.push_str(&quote(text));
            return;
        }
        let characters: Vec<String> =
            text.chars().map(|character| quote(character.encode_utf8(&mut [0; 4]))).collect();
        match (item.min, item.max) {
            (1, Some(1)) => out.push_str(&characters.join(" ")),
            _ => write!(out, "( {} )", characters.join(" ")).expect(STRING),
        }
    }
}

fn class(negated: bool, ranges: &[(u32, u32)], out: &mut String) {
    out.push_str(if negated { "/[^" } else { "/[" });
    for (low, high) in ranges {
        // Surrogates are no characters; a range over them has those around.
        write!(out, "\\x{{{:x}}}-\\x{{{:x}}}", above(*low), below(*high)).expect(STRING);
    }
    out.push_str("]/");
}

fn above(code: u32) -> u32 {
    if (0xd800..0xe000).contains(&code) { 0xe000 } else { code }
}

fn below(code: u32) -> u32 {
    if (0xd800..0xe000).contains(&code) { 0xd7ff } else { code }
}
