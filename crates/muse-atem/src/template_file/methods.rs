//! Python's methods of strings, lists and dicts.

use minijinja::value::{Kwargs, Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

use super::python::{invalid, items};
use super::{dict, format};

/// The widest text that padding gives.
const MAX_WIDTH: usize = 10_000;

/// All methods that values of templates have.
pub(super) const METHODS: [&str; 59] = [
    "capitalize",
    "casefold",
    "center",
    "copy",
    "count",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "get",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isspace",
    "istitle",
    "isupper",
    "items",
    "join",
    "keys",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
    "values",
    "zfill",
    // Refused when called, since they change what they are called on.
    "append",
    "clear",
    "extend",
    "insert",
    "pop",
    "popitem",
    "remove",
    "reverse",
    "setdefault",
    "sort",
    "update",
    // Of `cycler` and `loop`.
    "next",
];

/// Calls a method that the value itself does not have.
pub(super) fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => string(state, value, method, args),
        ValueKind::Map => dict::call(state, value, method, args),
        ValueKind::Seq => list(state, value, method, args),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn list(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    match method {
        "index" => {
            let (item,): (Value,) = from_args(args)?;
            for (at, other) in items(state, value)?.enumerate() {
                if other? == item {
                    return Ok(Value::from(at));
                }
            }
            Err(invalid("index() of an item that is not in the list".to_owned()))
        }
        "copy" => {
            let () = from_args(args)?;
            Ok(value.clone())
        }
        "append" | "clear" | "extend" | "insert" | "pop" | "remove" | "reverse" | "sort" => {
            Err(invalid(format!("{method}() would change a list, which templates must not")))
        }
        _ => pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn string(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let text = value.as_str().unwrap_or_default();
    let plain = |result: String| {
        let () = from_args(args)?;
        Ok(Value::from(result))
    };
    let check = |holds: bool| {
        let () = from_args(args)?;
        Ok(Value::from(holds))
    };
    match method {
        "casefold" => plain(text.to_lowercase().replace('ß', "ss")),
        "swapcase" => plain(text.chars().flat_map(swap_case).collect()),
        "title" => plain(title(text)),
        "capitalize" => plain(capitalize(text)),
        "isdecimal" => check(all(text, |c| c.is_ascii_digit() || is_decimal(c))),
        "isdigit" => check(all(text, |c| is_decimal(c) || "²³¹⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉".contains(c))),
        "isidentifier" => {
            let first = text.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_');
            check(first && all(text, |c| c.is_alphanumeric() || c == '_'))
        }
        "istitle" => check(text.chars().any(char::is_alphabetic) && title(text) == text),
        "index" | "rindex" | "find" | "rfind" => find(text, method, args),
        "count" => {
            let (part, start, end): (&str, Option<i64>, Option<i64>) = from_args(args)?;
            let within = within(text, start, end).map_or("", |(_, text)| text);
            let count = within.matches(part).count();
            Ok(Value::from(if part.is_empty() { within.chars().count() + 1 } else { count }))
        }
        "startswith" | "endswith" => {
            let (parts, start, end): (Value, Option<i64>, Option<i64>) = from_args(args)?;
            let text = within(text, start, end).map(|(_, text)| text);
            let fits = |part: &str| match method {
                "startswith" => text.is_some_and(|text| text.starts_with(part)),
                _ => text.is_some_and(|text| text.ends_with(part)),
            };
            match parts.as_str() {
                Some(part) => Ok(Value::from(fits(part))),
                None => any_text(state, &parts, method, fits),
            }
        }
        "removeprefix" | "removesuffix" => {
            let (part,): (&str,) = from_args(args)?;
            let rest = match method {
                "removeprefix" => text.strip_prefix(part),
                _ => text.strip_suffix(part),
            };
            Ok(Value::from(rest.unwrap_or(text)))
        }
        "partition" | "rpartition" => {
            let (part,): (&str,) = from_args(args)?;
            let found = match method {
                "partition" => text.split_once(part),
                _ => text.rsplit_once(part),
            };
            let parts = match (found, method) {
                (Some((before, after)), _) => [before, part, after],
                (None, "partition") => [text, "", ""],
                (None, _) => ["", "", text],
            };
            Ok(Value::from(Tuple::from(parts.map(Value::from))))
        }
        "format" => format::braces(state, text, args).map(Value::from),
        "split" | "rsplit" => split(text, method, args),
        "splitlines" => {
            let (keep, options): (Option<bool>, Kwargs) = from_args(args)?;
            let keep = keep.or(options.get("keepends")?).unwrap_or(false);
            options.assert_all_used()?;
            Ok(lines(text, keep).into_iter().map(Value::from).collect())
        }
        "center" | "ljust" | "rjust" | "zfill" => pad(text, method, args),
        "expandtabs" => {
            let (width,): (Option<usize>,) = from_args(args)?;
            expand_tabs(text, width.unwrap_or(8)).map(Value::from)
        }
        "join" => {
            let (texts,): (Value,) = from_args(args)?;
            join(state, text, &texts)
        }
        "replace" => {
            let (old, new, count): (&str, &str, Option<i32>) = from_args(args)?;
            check_growth(state, text, old, new)?;
            Ok(Value::from(match count.and_then(|count| usize::try_from(count).ok()) {
                Some(count) => text.replacen(old, new, count),
                None => text.replace(old, new),
            }))
        }
        _ => pycompat::unknown_method_callback(state, value, method, args),
    }
}

/// Texts with another between them.
fn join(state: &State, separator: &str, texts: &Value) -> Result<Value, Error> {
    let mut out = String::new();
    for (i, item) in items(state, texts)?.enumerate() {
        let item = item?;
        let Some(text) = item.as_str() else {
            let kind = item.kind();
            return Err(invalid(format!("join() takes strings only, found {kind}")));
        };
        state.consume_fuel((separator.len() + text.len()) as u64 / 64)?;
        out.push_str(if i > 0 { separator } else { "" });
        out.push_str(text);
    }
    Ok(Value::from(out))
}

/// Pays for what replacing may add before it is made.
fn check_growth(state: &State, text: &str, old: &str, new: &str) -> Result<(), Error> {
    let times = text.len() / old.len().max(1) + 1;
    let growth = times.saturating_mul(new.len().saturating_sub(old.len()));
    state.consume_fuel(growth as u64 / 64)
}

fn all(text: &str, fits: impl Fn(char) -> bool) -> bool {
    !text.is_empty() && text.chars().all(fits)
}

/// Digits of ten in any script: those in runs of ten from a zero on.
fn is_decimal(character: char) -> bool {
    const ZEROS: [u32; 14] = [
        0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xe50, 0xed0, 0xf20,
        0xff10,
    ];
    let code = u32::from(character);
    ZEROS.iter().any(|zero| (*zero..*zero + 10).contains(&code))
}

fn swap_case(character: char) -> Vec<char> {
    if character.is_uppercase() {
        character.to_lowercase().collect()
    } else {
        character.to_uppercase().collect()
    }
}

/// Every letter behind none is a capital.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_word = false;
    for character in text.chars() {
        if in_word {
            out.extend(character.to_lowercase());
        } else {
            out.extend(character.to_uppercase());
        }
        in_word = character.is_alphabetic();
    }
    out
}

/// The first letter is a capital, the others are none.
pub(super) fn capitalize(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(characters.flat_map(char::to_lowercase)).collect()
}

/// The part of a text between two indices of characters, which may count from the end, and how
/// many characters are before it; none when it begins behind the end.
fn within(text: &str, start: Option<i64>, end: Option<i64>) -> Option<(usize, &str)> {
    if start.is_none() && end.is_none() {
        return Some((0, text));
    }
    let count = text.chars().count();
    let index = |at: i64| match usize::try_from(at) {
        Ok(at) => at,
        Err(_) => count.saturating_sub(at.unsigned_abs() as usize),
    };
    let (start, end) = (start.map_or(0, index), end.map_or(count, index).min(count));
    if start > count || start > end {
        return None;
    }
    let offset = |at: usize| text.char_indices().nth(at).map_or(text.len(), |(at, _)| at);
    Some((start, &text[offset(start)..offset(end)]))
}

fn find(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (part, start, end): (&str, Option<i64>, Option<i64>) = from_args(args)?;
    let found = within(text, start, end).and_then(|(before, text)| {
        let at = if method.starts_with('r') { text.rfind(part) } else { text.find(part) };
        at.map(|at| before + text[..at].chars().count())
    });
    match (found, method) {
        (Some(at), _) => Ok(Value::from(at)),
        (None, "find" | "rfind") => Ok(Value::from(-1)),
        (None, _) => Err(invalid(format!("{method}() of a text that is not in the string"))),
    }
}

fn any_text(
    state: &State,
    parts: &Value,
    method: &str,
    fits: impl Fn(&str) -> bool,
) -> Result<Value, Error> {
    let mut any = false;
    for part in items(state, parts)? {
        let part = part?;
        match part.as_str() {
            Some(part) => any |= fits(part),
            None => {
                let kind = part.kind();
                return Err(invalid(format!("{method}() takes strings only, found {kind}")));
            }
        }
    }
    Ok(Value::from(any))
}

fn split(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator, max, options): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = separator.or(options.get::<Option<Value>>("sep")?);
    let max = max.or(options.get("maxsplit")?).and_then(|max| usize::try_from(max).ok());
    options.assert_all_used()?;
    let separator = separator.filter(|separator| !separator.is_none());
    let max = max.unwrap_or(usize::MAX).saturating_add(1);
    let parts: Vec<&str> = match (&separator, method) {
        (None, "split") => split_words(text, max),
        (None, _) => rsplit_words(text, max),
        (Some(separator), _) => {
            let Some(separator) = separator.as_str().filter(|separator| !separator.is_empty())
            else {
                return Err(invalid(format!("{method}() by what is no text, or an empty one")));
            };
            if method == "split" {
                text.splitn(max, separator).collect()
            } else {
                let mut parts: Vec<&str> = text.rsplitn(max, separator).collect();
                parts.reverse();
                parts
            }
        }
    };
    Ok(parts.into_iter().map(Value::from).collect())
}

/// Words between white space; the last of `max` has the rest.
fn split_words(text: &str, max: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if parts.len() + 1 == max {
            parts.push(rest);
            break;
        }
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        parts.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    // Without a limit nothing is left; with one the rest keeps its white space.
    parts
}

fn rsplit_words(text: &str, max: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_end();
    while !rest.is_empty() {
        if parts.len() + 1 == max {
            parts.push(rest);
            break;
        }
        let start = rest.char_indices().rev().find(|(_, c)| c.is_whitespace());
        let start = start.map_or(0, |(at, c)| at + c.len_utf8());
        parts.push(&rest[start..]);
        rest = rest[..start].trim_end();
    }
    parts.reverse();
    parts
}

/// Lines as Python's `splitlines` cuts them.
fn lines(text: &str, keep: bool) -> Vec<&str> {
    const ENDS: [char; 10] = [
        '\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}',
        '\u{2029}',
    ];
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (end, next) = match rest.find(ENDS) {
            None => (rest.len(), rest.len()),
            Some(at) if rest[at..].starts_with("\r\n") => (at, at + 2),
            Some(at) => (at, at + rest[at..].chars().next().map_or(0, char::len_utf8)),
        };
        lines.push(&rest[..if keep { next } else { end }]);
        rest = &rest[next..];
    }
    lines
}

fn pad(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill): (i64, Option<&str>) = from_args(args)?;
    let fill = match (method, fill) {
        ("zfill", None) => "0",
        (_, None) => " ",
        (_, Some(fill)) if fill.chars().count() == 1 && method != "zfill" => fill,
        (..) => return Err(invalid(format!("{method}() fills with one character"))),
    };
    let width = usize::try_from(width).unwrap_or(0);
    if width > MAX_WIDTH {
        return Err(invalid(format!("{method}() to {width} characters, at most {MAX_WIDTH}")));
    }
    let missing = width.saturating_sub(text.chars().count());
    let (left, right) = match method {
        "ljust" => (0, missing),
        "center" => {
            // Python's way to cut an odd number.
            let left = missing / 2 + (missing & width & 1);
            (left, missing - left)
        }
        _ => (missing, 0),
    };
    let sign = text.chars().next().filter(|sign| method == "zfill" && matches!(sign, '-' | '+'));
    let (sign, text) = match sign {
        Some(sign) => (String::from(sign), &text[1..]),
        None => (String::new(), text),
    };
    Ok(Value::from(format!("{sign}{}{text}{}", fill.repeat(left), fill.repeat(right))))
}

fn expand_tabs(text: &str, width: usize) -> Result<String, Error> {
    if width > MAX_WIDTH {
        return Err(invalid(format!("tabs of {width} characters, at most {MAX_WIDTH}")));
    }
    let (mut out, mut column) = (String::new(), 0);
    for character in text.chars() {
        match character {
            '\t' if width == 0 => {}
            '\t' => {
                let missing = width - column % width;
                out.push_str(&" ".repeat(missing));
                column += missing;
            }
            '\n' | '\r' => {
                out.push(character);
                column = 0;
            }
            character => {
                out.push(character);
                column += 1;
            }
        }
    }
    Ok(out)
}

/// `dict(pairs, **members)`.
pub(super) fn dict(state: &State, pairs: Option<Value>, members: Kwargs) -> Result<Value, Error> {
    let mut all: Vec<(Value, Value)> = Vec::new();
    let mut put = |key: Value, value: Value| match all.iter_mut().find(|(name, _)| *name == key) {
        Some((_, old)) => *old = value,
        None => all.push((key, value)),
    };
    match pairs {
        None => {}
        Some(pairs) if pairs.kind() == ValueKind::Map => {
            for key in items(state, &pairs)? {
                let key = key?;
                let value = pairs.get_item(&key)?;
                put(key, value);
            }
        }
        Some(pairs) => {
            for pair in items(state, &pairs)? {
                let pair = pair?;
                put(pair.get_item_by_index(0)?, pair.get_item_by_index(1)?);
            }
        }
    }
    for key in members.args().map(str::to_owned).collect::<Vec<_>>() {
        put(Value::from(key.as_str()), members.get(&key)?);
    }
    Ok(Value::from_pairs(all))
}
