//! The Lark syntax of llguidance: how texts are spelled in it, and what its compiler's messages
//! say to whoever wrote a grammar.

use super::{explain, regex};
use crate::json::Json;

/// A text as a quoted string of a grammar.
pub(super) fn literal(text: &str) -> String {
    Json::String(text.to_owned()).to_compact()
}

/// The most characters of a line that a message quotes.
const MAX_QUOTED: usize = 60;

/// How the compiler calls parts of a grammar, and what they are.
const PARTS: [(&str, &str); 10] = [
    ("'rule_name'", "the name of a rule (lower case)"),
    ("'TOKEN_NAME'", "the name of a terminal (upper case)"),
    ("\"string...\"", "a text"),
    ("/regexp.../", "a regular expression"),
    ("'+' or '*' or '?'", "`+`, `*` or `?`"),
    ("<special_token>", "a special token"),
    ("@grammar_name", "`@` and a name"),
    ("'\\n'", "the end of the line"),
    ("end of input", "the end of the grammar"),
    ("EOF", "the end of the grammar"),
];

/// Beginnings of the compiler's messages, and what they say. `{}` is what the message names.
const MESSAGES: [(&str, &str); 29] = [
    ("no start rule found", "it has no rule `start`, where the answer begins"),
    (
        "unknown name: ",
        "{} is not defined; rules have lower-case names, terminals upper-case ones, \
      and terminals can use terminals only",
    ),
    ("rule ", "{} is not defined"),
    ("duplicate rule: ", "the rule {} is defined twice"),
    ("duplicate token: ", "the terminal {} is defined twice"),
    (
        "circular reference in token ",
        "the terminal {} refers to itself, which only rules \
      (lower-case names) can",
    ),
    (
        "NoExtensionBias",
        "no text fits: rules lead back to themselves without end, or terminals \
      leave nothing",
    ),
    ("unknown special token: ", "the vocabulary has no token {}"),
    ("Token range end too large: ", "the vocabulary has no token {}"),
    ("invalid token range: ", "the range of tokens {} ends before it begins"),
    ("unknown grammar ", "{} is no grammar of this request; name a rule"),
    ("Unknown common regex: ", "{} cannot be imported"),
    ("Unknown attribute: ", "a rule has no attribute {}"),
    ("declare statement not supported", "`%declare` is not supported; define the terminal"),
    ("override statement not supported", "`%override` is not supported; define the rule once"),
    ("params not supported", "parameters of rules and terminals are not supported"),
    ("priority not supported", "priorities are not supported; leave out the number"),
    ("template usage not supported", "templates are not supported; write out the rule"),
    ("invalid range order: ", "the range {} ends before it begins"),
    ("range start must be a single character", "a range begins with a single character"),
    ("range end must be a single character", "a range ends with a single character"),
    ("range end must be >= start, got ", "the repetition {} ends below where it begins"),
    ("range start must be >= 0, got ", "a repetition cannot begin at {}"),
    ("& is only supported for tokens", "`&` stands in terminals (upper-case names) only"),
    ("special tokens (like ", "special tokens stand in rules only, not in terminals"),
    ("%json literals cannot be used", "`%json` stands in rules only, not in terminals"),
    (
        "expecting rule, token or statement",
        "a rule (`name: …`), a terminal (`NAME: …`) or a \
      statement (`%…`) is expected",
    ),
    ("Expected value", "a text, a regular expression or a name is expected"),
    ("Unexpected expression ", "{} is not understood here"),
];

/// Why the compiler refuses a client's grammar, in one line: where, in which line of the grammar,
/// and what to change.
pub(super) fn explain(source: &str, message: &str) -> String {
    let (position, message) = split(message);
    let position = position.map(|(line, column)| GrammarPosition::new(source, line, column));
    let what = match describe(message, position.as_ref()) {
        Some(what) => what,
        // Limits, and what schemas within the grammar cannot do, are those of all grammars.
        None => explain::explain(message),
    };
    match position {
        Some(position) => format!("{}: {what}{}", position.name(), position.quoted()),
        None => what,
    }
}

/// A position in a grammar.
struct GrammarPosition<'a> {
    line: usize,
    column: usize,
    text: &'a str,
}

impl<'a> GrammarPosition<'a> {
    fn new(source: &'a str, line: usize, column: usize) -> Self {
        let text = source.lines().nth(line.saturating_sub(1)).unwrap_or_default();
        Self { line, column, text }
    }

    fn name(&self) -> String {
        format!("line {}, column {}", self.line, self.column)
    }

    /// The character at the position.
    fn found(&self) -> Option<char> {
        self.text.chars().nth(self.column.saturating_sub(1))
    }

    fn quoted(&self) -> String {
        match self.text.char_indices().nth(MAX_QUOTED) {
            _ if self.text.is_empty() => String::new(),
            Some((at, _)) => format!(" in {:?} and more", &self.text[..at]),
            None => format!(" in {:?}", self.text),
        }
    }
}

/// The position that a message begins with, as `at 3(5): ` or `3(5): `, and the rest of its first
/// line without the compiler's own view of it.
fn split(message: &str) -> (Option<(usize, usize)>, &str) {
    let first = message.lines().next().unwrap_or_default();
    let position = || {
        let (line, rest) = first.strip_prefix("at ").unwrap_or(first).split_once('(')?;
        let (column, rest) = rest.split_once("): ")?;
        Some(((line.parse().ok()?, column.parse().ok()?), rest))
    };
    match position() {
        Some((position, rest)) => {
            // Parser messages end with ` (at "…" (…))`.
            (Some(position), rest.rfind(" (at \"").map_or(rest, |at| &rest[..at]))
        }
        None => (None, first),
    }
}

/// What a message without its position says.
fn describe(message: &str, position: Option<&GrammarPosition<'_>>) -> Option<String> {
    if message.starts_with("lexer error") {
        return Some(unreadable(position));
    }
    if let Some(expected) = message.strip_prefix("Expected token ") {
        let (expected, found) = expected.split_once(", found ")?;
        return Some(format!("found {}, expected {}", part(found), part(expected)));
    }
    if let Some(invalid) = message.strip_prefix("invalid regex ") {
        let pattern = Json::parse(invalid.split(" (in ").next()?).ok()?;
        let pattern = pattern.as_str()?;
        let why = regex::check(pattern).err();
        let why = why.unwrap_or_else(|| "it is not supported".to_owned());
        return Some(format!("the expression {} is not supported: {why}", regex::quoted(pattern)));
    }
    let (start, text) = MESSAGES.iter().find(|(start, _)| message.starts_with(start))?;
    let named = message[start.len()..].split([';', ',']).next().unwrap_or_default();
    let named = if named.starts_with('(') { &message[start.len()..] } else { named };
    let named = named.trim_end_matches(" definition").trim_end_matches(" not found");
    Some(text.replace("{}", &format!("`{}`", named.trim_matches(['"', '\'', ' ']))))
}

/// A part of a grammar that the compiler names.
fn part(name: &str) -> String {
    match PARTS.iter().find(|(theirs, _)| *theirs == name) {
        Some((_, ours)) => (*ours).to_owned(),
        None => format!("`{}`", name.trim_matches('\'')),
    }
}

/// Text that is no part of any grammar.
fn unreadable(position: Option<&GrammarPosition<'_>>) -> String {
    let Some(position) = position else { return "it cannot be read".to_owned() };
    let quotes = position.text.matches('"').count() - position.text.matches("\\\"").count();
    match position.found() {
        Some('\'') => "texts stand in double quotes".to_owned(),
        Some(';') => "rules end with their line, without `;`".to_owned(),
        _ if position.text.trim_start().starts_with('%') => {
            "there is no such statement; `%import`, `%ignore`, `%json`, `%regex` and \
             `%llguidance` are understood"
                .to_owned()
        }
        _ if quotes % 2 == 1 => "a text has no closing quote".to_owned(),
        _ if position.text.contains('\\') => "a text holds an unknown escape".to_owned(),
        Some(found) => format!("{found:?} has no meaning here"),
        None => "the line ends too early".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_parser_details_are_split_off() {
        for (message, position, rest) in [
            ("at 3(14): unknown name: \"a\"", Some((3, 14)), "unknown name: \"a\""),
            (
                "1(7): Expected token ':', found '=' (at \"=\" ('='))\nmore",
                Some((1, 7)),
                "Expected token ':', found '='",
            ),
            ("no start rule found", None, "no start rule found"),
            ("(x): y", None, "(x): y"),
        ] {
            assert_eq!(split(message), (position, rest));
        }
    }
}
