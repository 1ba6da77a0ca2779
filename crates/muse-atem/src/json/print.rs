//! Prints JSON: like Python's `json.dumps`, and without white space.

use std::fmt::Write;

use super::Json;

/// Appends `value` with `", "` and `": "` between, non-ASCII characters raw, nothing HTML-escaped.
pub(super) fn python(value: &Json, out: &mut String) {
    match value {
        Json::Number(number) => match number.to_python().as_str() {
            "inf" => out.push_str("Infinity"),
            "-inf" => out.push_str("-Infinity"),
            text => out.push_str(text),
        },
        Json::Array(items) => list('[', items, ']', ", ", out, python),
        Json::Object(members) => list('{', members, '}', ", ", out, |(key, value), out| {
            string(key, out);
            out.push_str(": ");
            python(value, out);
        }),
        _ => scalar(value, out),
    }
}

/// Appends `value` without white space.
pub(super) fn compact(value: &Json, out: &mut String) {
    match value {
        Json::Number(number) => out.push_str(number.text()),
        Json::Array(items) => list('[', items, ']', ",", out, compact),
        Json::Object(members) => list('{', members, '}', ",", out, |(key, value), out| {
            string(key, out);
            out.push(':');
            compact(value, out);
        }),
        _ => scalar(value, out),
    }
}

fn list<T>(
    open: char,
    items: &[T],
    close: char,
    between: &str,
    out: &mut String,
    mut print: impl FnMut(&T, &mut String),
) {
    out.push(open);
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push_str(between);
        }
        print(item, out);
    }
    out.push(close);
}

fn scalar(value: &Json, out: &mut String) {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(true) => out.push_str("true"),
        Json::Bool(false) => out.push_str("false"),
        Json::String(text) => string(text, out),
        Json::Number(_) | Json::Array(_) | Json::Object(_) => unreachable!("not a plain scalar"),
    }
}

/// Appends `text` in quotes; only what JSON requires is escaped.
pub(super) fn string(text: &str, out: &mut String) {
    out.push('"');
    escaped(text, out);
    out.push('"');
}

/// Appends `text` escaped, without the quotes.
pub(super) fn escaped(text: &str, out: &mut String) {
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c == '"' || c == '\\' || c < ' ') {
        out.push_str(&rest[..at]);
        match rest.as_bytes()[at] {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x08 => out.push_str("\\b"),
            0x0c => out.push_str("\\f"),
            control => write!(out, "\\u{control:04x}").expect("a String takes all"),
        }
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
}
