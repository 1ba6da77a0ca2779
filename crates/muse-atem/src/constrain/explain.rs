//! Errors of the grammar compiler in the words of a JSON schema. The compiler's own messages are
//! about the grammar of the whole answer, which no client wrote, so none of them is passed on.

use std::fmt;

use muse_core::Error;

/// Substrings of the compiler's messages, in lower case, each with its explanation.
const EXPLANATIONS: [(&str, &str); 14] = [
    (
        "noextensionbias",
        "`$ref` that leads back to itself, or other keywords, leave no value that could be written",
    ),
    (
        "circular reference",
        "`$ref` leads back to itself beside other keywords; leave those out or name what they bind",
    ),
    (
        "min/maxproperties",
        "`minProperties` and `maxProperties` are supported where all of `properties` are required",
    ),
    (
        "oneof constraints",
        "`oneOf` is supported where types or constants tell its schemas apart; give each a required \
         `const` of its own or use `anyOf`",
    ),
    (
        "unknown format",
        "`format` is not one of date-time, time, date, duration, email, hostname, ipv4, ipv6, uuid, \
         uri; leave it out or use `pattern`",
    ),
    (
        "patternproperty",
        "`patternProperties` are supported where no name matches two of the patterns",
    ),
    (
        "schema too large",
        "`anyOf`, `allOf` and `$ref` unfold to more than 50000 schemas; use smaller ones",
    ),
    ("stack level", "`allOf` and `$ref` are nested too deep; use fewer levels"),
    ("reference", "`$ref` leads to nothing that could be found"),
    ("multiple", "`multipleOf` is beyond what is supported; use a smaller number"),
    ("regex for", "`minimum` or `maximum` is beyond what is supported; use numbers nearer to 0"),
    ("regex is empty", "`pattern`, `format` and lengths leave no text; change one of them"),
    (
        "unable to determine if regex",
        "`pattern`, `format` and lengths together take too long to follow; leave one of them out",
    ),
    ("unsatisfiable", "its keywords leave no value that could be written"),
];

/// Why a grammar is refused.
pub(super) fn explain(error: &str) -> String {
    if let Some(count) = too_many_alternatives(error) {
        return count;
    }
    let lower = error.to_lowercase();
    match EXPLANATIONS.iter().find(|(word, _)| lower.contains(word)) {
        Some((_, why)) => (*why).to_owned(),
        None => "it takes more work than one request may make; use fewer and smaller patterns, \
                 counts, lists of values and properties"
            .to_owned(),
    }
}

/// Explains the compiler's limit on alternatives at one position.
fn too_many_alternatives(error: &str) -> Option<String> {
    let (_, counts) = error.split_once("Current row has ")?;
    let mut counts =
        counts.split(|character: char| !character.is_ascii_digit()).filter(|n| !n.is_empty());
    let (found, max) = (counts.next()?, counts.next()?);
    Some(format!(
        "it allows {found} alternatives at one position, at most {max}; use fewer alternatives, or \
         fewer optional properties (each of them counts as 4)"
    ))
}

/// The error of a constraint that can be evaluated no further.
pub(super) fn too_complex(error: impl fmt::Display) -> Error {
    Error::Invalid(format!(
        "the answer's constraint cannot be evaluated further: {}",
        explain(&error.to_string())
    ))
}
