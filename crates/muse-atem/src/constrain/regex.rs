//! Regular expressions written by clients: whether they are supported, what they cost, and how they
//! are anchored.

use llguidance::derivre::RegexBuilder;
use regex_syntax::hir::{Hir, HirKind};

/// The most characters an expression may match with its repetitions written out.
const MAX_CHARACTERS: u64 = 20_000;

/// The number of characters an expression matches with its repetitions written out, which the cost
/// of compiling it grows with.
///
/// # Errors
/// One line on why the expression is not supported.
pub(super) fn check(expression: &str) -> Result<u64, String> {
    let parsed = regex_syntax::parse(expression).map_err(|error| match error {
        regex_syntax::Error::Parse(error) => {
            format!("{} at byte {}", error.kind(), error.span().start.offset)
        }
        regex_syntax::Error::Translate(error) => error.kind().to_string(),
        _ => "it is no regular expression".to_owned(),
    })?;
    let characters = characters(&parsed);
    if characters > MAX_CHARACTERS {
        return Err(format!(
            "its repetitions stand for {characters} characters, at most {MAX_CHARACTERS}; use smaller counts"
        ));
    }
    check_supported(expression)?;
    Ok(characters)
}

/// Whether a well-formed expression can be matched incrementally.
pub(super) fn check_supported(expression: &str) -> Result<(), String> {
    RegexBuilder::new().mk_regex(expression).map(drop).map_err(|_| {
        "`^` is supported at the start only, `$` at the end only, word boundaries nowhere"
            .to_owned()
    })
}

fn characters(expression: &Hir) -> u64 {
    match expression.kind() {
        HirKind::Empty | HirKind::Look(_) => 0,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(_) => 1,
        HirKind::Repetition(repeated) => {
            let count = repeated.max.unwrap_or(repeated.min).max(1);
            characters(&repeated.sub).saturating_mul(u64::from(count))
        }
        HirKind::Capture(group) => characters(&group.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(characters).fold(0, u64::saturating_add)
        }
    }
}

/// An expression as error messages quote it.
pub(super) fn quoted(expression: &str) -> String {
    const SHOWN: usize = 60;
    match expression.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{:?} and more", &expression[..at]),
        None => format!("{expression:?}"),
    }
}

/// An expression that matches a whole text when `pattern` matches somewhere in it.
pub(super) fn anchored(pattern: &str) -> String {
    let (open, rest) = match pattern.strip_prefix('^') {
        Some(rest) => ("", rest),
        None => ("(?s:.*)", pattern),
    };
    let escapes = |rest: &&str| rest.bytes().rev().take_while(|byte| *byte == b'\\').count();
    match rest.strip_suffix('$').filter(|rest| escapes(rest) % 2 == 0) {
        Some(rest) => format!("{open}({rest})"),
        None => format!("{open}({rest})(?s:.*)"),
    }
}

/// The formats that a raw string can be constrained to.
pub(super) const FORMATS: &str = "date, time, date-time, uuid, email, ipv4";

/// The expression of a format.
pub(super) fn of_format(name: &str) -> Option<&'static str> {
    Some(match name {
        "date" => "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])",
        "time" => {
            "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
        }
        "date-time" => {
            "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
        }
        "uuid" => "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
        "email" => {
            "[A-Za-z0-9._%+-]+@[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)+"
        }
        "ipv4" => {
            "((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_written_out() {
        for (expression, expect) in [
            ("", 0),
            ("abc", 3),
            ("a{3}", 3),
            ("(ab{2,5}|[x-z]+){4}", 28),
            ("(?s:.*)a?", 2),
            ("(a{100}){100}", 10_000),
        ] {
            assert_eq!(check(expression), Ok(expect), "{expression}");
        }
    }

    #[test]
    fn unsupported_expressions_are_explained_in_one_line() {
        for (expression, words) in [
            ("(", "unclosed group at byte 0"),
            ("(?=a)b", "look-ahead"),
            ("(a)\\1", "backreferences"),
            ("a^", "`^` is supported at the start only"),
            ("\\bx", "word boundaries"),
            ("(a{1000}){1000}", "1000000 characters, at most 20000"),
            ("((((((a{999}){999}){999}){999}){999}){999}){999}", "smaller counts"),
        ] {
            let error = check(expression).unwrap_err();
            assert!(error.contains(words) && !error.contains('\n'), "{expression}: {error}");
        }
    }
}
