//! What a compiler of grammars complains of, in words for whoever wrote the schema. The compiler's
//! own speak of the grammar of the whole turn, which no client wrote, so none of them is passed on.

use std::fmt;

use muse_core::Error;

/// Words of the compiler, in lower case, and what stands in the way when they are met.
const TELLING: [(&str, &str); 14] = [
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
pub(super) fn told(fault: &str) -> String {
    if let Some(ways) = crowded(fault) {
        return ways;
    }
    let lower = fault.to_lowercase();
    match TELLING.iter().find(|(word, _)| lower.contains(word)) {
        Some((_, why)) => (*why).to_owned(),
        None => "it takes more work than one request may make; use fewer and smaller patterns, \
                 counts, lists of values and properties"
            .to_owned(),
    }
}

/// Told of a grammar that may go on in too many ways at one place.
fn crowded(fault: &str) -> Option<String> {
    let (_, counts) = fault.split_once("Current row has ")?;
    let mut counts =
        counts.split(|letter: char| !letter.is_ascii_digit()).filter(|n| !n.is_empty());
    let (found, most) = (counts.next()?, counts.next()?);
    Some(format!(
        "it may go on in {found} ways at one place, at most {most}; use fewer alternatives, or \
         fewer properties that may be left out (each of them takes 4 ways)"
    ))
}

/// The error of a constraint that can be followed no further.
pub(super) fn too_complex(fault: impl fmt::Display) -> Error {
    Error::Invalid(format!(
        "the answer's constraint cannot be followed further: {}",
        told(&fault.to_string())
    ))
}
