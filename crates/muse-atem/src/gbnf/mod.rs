//! Translates grammars in GBNF, the syntax of llama.cpp, into the Lark syntax of llguidance.
//!
//! GBNF matches character by character. A grammar without recursion is one regular expression; in
//! others every character is a terminal of its own, since longer terminals match greedily and
//! would lose texts.

mod parse;
mod print;

use std::fmt::Write;

use parse::{Atom, Item, Rule, Sequence};
use print::Print;

const STRING: &str = "a String takes all";

/// Whether a text is GBNF rather than Lark: whether it defines rules with `::=`.
pub(crate) fn is_gbnf(text: &str) -> bool {
    let mut quoted = None;
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match quoted {
            Some(_) if byte == b'\n' => quoted = None,
            // A comment, to the end of its line.
            Some(b'#') => {}
            Some(_) if escaped => escaped = false,
            Some(_) if byte == b'\\' => escaped = true,
            Some(end) => quoted = Some(end).filter(|_| byte != end),
            None if text[at..].starts_with("::=") => return true,
            None if matches!(byte, b'"' | b'#') => quoted = Some(byte),
            None => {}
        }
    }
    false
}

/// The Lark grammar of a GBNF grammar.
///
/// # Errors
/// What is wrong or cannot be translated, and where.
pub(crate) fn translate(text: &str) -> Result<String, String> {
    let (rules, numbers) = parse::parse(text)?;
    let root = *numbers.get("root").ok_or("it has no rule `root`, where the answer begins")?;
    let endless = endless(&rules);
    if endless[root] {
        let names = rules.iter().zip(&endless).filter(|(_, endless)| **endless);
        let names: Vec<String> = names.map(|(rule, _)| format!("`{}`", rule.name)).collect();
        return Err(format!(
            "no text fits: {} lead back to themselves without end",
            names.join(", ")
        ));
    }
    let print = Print { letter: if is_recursive(&rules, root) { 'r' } else { 'R' } };
    let mut out = format!("start: {}{root}\n", print.letter);
    for (number, rule) in rules.iter().enumerate() {
        write!(out, "{}{number}: ", print.letter).expect(STRING);
        print.alternatives(&rule.alternatives, &mut out);
        out.push('\n');
    }
    Ok(out)
}

/// Which rules match no text, since each of their alternatives needs one of these.
fn endless(rules: &[Rule]) -> Vec<bool> {
    fn ends(alternatives: &[Sequence], endless: &[bool]) -> bool {
        let item_ends = |item: &Item| {
            item.min == 0
                || match &item.atom {
                    Atom::Literal(_) | Atom::Class { .. } => true,
                    Atom::Rule(number) => !endless[*number],
                    Atom::Group(alternatives) => ends(alternatives, endless),
                }
        };
        alternatives.iter().any(|sequence| sequence.iter().all(item_ends))
    }
    let mut endless = vec![true; rules.len()];
    loop {
        let found = (0..rules.len())
            .filter(|rule| endless[*rule] && ends(&rules[*rule].alternatives, &endless))
            .collect::<Vec<_>>();
        if found.is_empty() {
            return endless;
        }
        found.into_iter().for_each(|rule| endless[rule] = false);
    }
}

/// Whether a rule that `root` needs leads back to itself.
fn is_recursive(rules: &[Rule], root: usize) -> bool {
    /// The rules that alternatives name.
    fn named(alternatives: &[Sequence], into: &mut Vec<usize>) {
        for item in alternatives.iter().flatten() {
            match &item.atom {
                Atom::Rule(number) => into.push(*number),
                Atom::Group(alternatives) => named(alternatives, into),
                Atom::Literal(_) | Atom::Class { .. } => {}
            }
        }
    }
    // Depth first, without recursion: rules may lead to rules as often as there are rules.
    let (mut open, mut done) = (vec![false; rules.len()], vec![false; rules.len()]);
    let mut path: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut next = Some(root);
    loop {
        if let Some(rule) = next.take() {
            let mut needs = Vec::new();
            named(&rules[rule].alternatives, &mut needs);
            open[rule] = true;
            path.push((rule, needs));
        }
        let Some((rule, needs)) = path.last_mut() else { return false };
        match needs.pop() {
            Some(needed) if open[needed] => return true,
            Some(needed) => next = Some(needed).filter(|needed| !done[*needed]),
            None => {
                open[*rule] = false;
                done[*rule] = true;
                path.pop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gbnf_is_told_from_lark() {
        for text in ["root ::= \"a\"", "# note\nroot::=[\"]", "a ::= \"x\\\"\" b"] {
            assert!(is_gbnf(text), "{text}");
        }
        for text in ["start: \"::=\"", "start: A # ::=\nA: /x/", "start: \"\\\"::=\"", ""] {
            assert!(!is_gbnf(text), "{text}");
        }
    }

    #[test]
    fn regular_grammars_are_terminals_and_others_single_characters() {
        for (gbnf, lark) in [
            ("root ::= \"ab\" | [a-c]+", "start: R0\nR0: \"ab\" | /[\\x{61}-\\x{63}]/+\n"),
            ("root ::= x{2,3} # two\nx ::= ()?", "start: R1\nR0: ( \"\" )?\nR1: R0{2,3}\n"),
            (
                "root ::= \"ab\"? |\n  (\"c\"\n root)",
                "start: r0\nr0: ( \"a\" \"b\" )? | ( \"c\" r0 )\n",
            ),
            (
                "root ::= [^\\n\\x5d-] root |\n",
                "start: r0\nr0: /[^\\x{a}-\\x{a}\\x{5d}-\\x{5d}\\x{2d}-\\x{2d}]/ r0 | \"\"\n",
            ),
        ] {
            assert_eq!(translate(gbnf).as_deref(), Ok(lark), "{gbnf}");
        }
    }

    #[test]
    fn what_cannot_be_translated_is_named_with_its_place() {
        for (gbnf, message) in [
            ("a ::= \"x\"", "it has no rule `root`, where the answer begins"),
            ("root ::= a", "rule `a` is used, but not defined"),
            ("root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: rule `root` is defined twice"),
            ("root ::= \"a\" root", "no text fits: `root` lead back to themselves without end"),
            ("root ::= <think>", "line 1, column 10: tokens like <[1]>"),
            ("root ::= \"a", "line 1, column 12: a text has no closing quote"),
            ("root ::= [a", "line 1, column 12: a class of characters has no closing `]`"),
            ("root ::= [z-a]", "ends before it begins"),
            ("root ::= \"\\q\"", "`\\q` is no escape"),
            ("root ::= \"\\u12\"", "`\\u` takes 4 digits"),
            ("root ::= (\"a\"", "line 1, column 14: the grammar ends, expected `)`"),
            ("root ::= \"a\"{3,2}", "a repetition ends below"),
            ("root ::= \"a\"{9999}", "at most 2000"),
            ("root ::= \"a\" ;", "found ';', expected a part of the rule or the end of the line"),
            ("root = \"a\"\nx ::= \"b\"", "found '=', expected `::=`"),
        ] {
            let error = translate(gbnf).unwrap_err();
            assert!(error.contains(message), "{gbnf}: {error}");
        }
        let nested = format!("root ::= {}\"a\"{}", "(".repeat(99), ")".repeat(99));
        assert!(translate(&nested).unwrap_err().contains("deeper than 64"), "{nested}");
    }
}
