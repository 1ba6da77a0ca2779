//! Filters and tests of Jinja that minijinja lacks, or has in another way.

use minijinja::value::{Kwargs, Rest, Tuple, Value, ValueKind, from_args};
use minijinja::{Environment, Error, State};

use super::format;
use super::methods::{self, capitalize};
use super::python::{self, invalid, to_str};

/// Adds them.
pub(super) fn add(environment: &mut Environment<'static>) {
    environment.add_filter("truncate", truncate);
    environment.add_filter("wordcount", |state: &State, text: Value| -> Result<usize, Error> {
        let text = to_str(state, &text)?;
        let is_word = |character: char| character.is_alphanumeric() || character == '_';
        Ok(text.split(|character| !is_word(character)).filter(|word| !word.is_empty()).count())
    });
    environment.add_filter("center", |state: &mut State, text: Value, width: Option<i64>| {
        let text = Value::from(to_str(state, &text)?);
        methods::call(state, &text, "center", &[Value::from(width.unwrap_or(80))])
    });
    environment.add_filter("string", |state: &State, value: Value| to_str(state, &value));
    environment.add_filter("capitalize", |state: &State, value: Value| {
        Ok::<_, Error>(capitalize(&to_str(state, &value)?))
    });
    environment.add_filter("join", join);
    environment.add_filter("indent", indent);
    environment.add_filter(
        "format",
        |state: &State, text: String, args: Rest<Value>, members: Kwargs| {
            let named = members.args().next().is_some();
            let values = if named { Value::from(members) } else { Value::from(Tuple::new(args.0)) };
            format::percent(state, &text, &values)
        },
    );
    environment.add_filter("int", int);
    environment.add_filter("float", |value: Value, default: Option<f64>| {
        let number = match value.as_str() {
            Some(text) => text.trim().parse().ok(),
            None => f64::try_from(value).ok(),
        };
        Ok::<_, Error>(number.or(default).unwrap_or(0.0))
    });
    for name in ["escape", "e"] {
        environment.add_filter(name, escape);
    }
    // Members of a dict are no attributes.
    environment.add_filter("attr", |value: Value, name: String| match value.kind() {
        ValueKind::Map => Ok(Value::UNDEFINED),
        _ => value.get_attr(&name),
    });
    environment.add_filter("filesizeformat", minijinja_contrib::filters::filesizeformat);
    // It breaks lines in its own way.
    environment.remove_filter("pprint");
    environment.add_filter("striptags", |state: &State, text: Value| {
        Ok::<_, Error>(strip_tags(&to_str(state, &text)?))
    });
    environment.add_filter("urlencode", url_encode);
    // Strings and mappings have a length and items, too.
    environment.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map)
    });
    environment.add_test("iterable", |value: &Value| {
        value.is_undefined() || (!value.is_none() && value.try_iter().is_ok())
    });
    environment.add_test("callable", |value: &Value| {
        matches!(value.kind(), ValueKind::Plain) && value.as_object().is_some()
    });
}

/// `truncate(s, length=255, killwords=False, end='...', leeway=5)`.
fn truncate(
    state: &State,
    text: Value,
    args: Rest<Value>,
    options: Kwargs,
) -> Result<String, Error> {
    type Positional = (Option<usize>, Option<bool>, Option<String>, Option<usize>);
    let (length, killwords, end, leeway): Positional = from_args(&args)?;
    let length = length.or(options.get("length")?).unwrap_or(255);
    let killwords = killwords.or(options.get("killwords")?).unwrap_or(false);
    let end = end.or(options.get("end")?).unwrap_or_else(|| "...".to_owned());
    let leeway = leeway.or(options.get("leeway")?).unwrap_or(5);
    options.assert_all_used()?;
    let text = to_str(state, &text)?;
    let Some(kept) = length.checked_sub(end.chars().count()) else {
        return Err(invalid(format!(
            "truncate to {length} characters leaves no place for {end:?}"
        )));
    };
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(text);
    }
    let at = text.char_indices().nth(kept).map_or(text.len(), |(at, _)| at);
    let kept = &text[..at];
    let kept =
        if killwords { kept } else { kept.rsplit_once(' ').map_or(kept, |(words, _)| words) };
    Ok(format!("{kept}{end}"))
}

/// `join(value, d='', attribute=None)`; items as `str` spells them.
fn join(
    state: &mut State,
    items: Value,
    separator: Option<Value>,
    options: Kwargs,
) -> Result<String, Error> {
    let separator = separator.or(options.get("d")?).map(|separator| to_str(state, &separator));
    let separator = separator.transpose()?.unwrap_or_default();
    let attribute: Option<Value> = options.get("attribute")?;
    options.assert_all_used()?;
    let items = match attribute {
        Some(attribute) => {
            let path = Kwargs::from_iter([("attribute", attribute)]);
            state.apply_filter("map", &[items, Value::from(path)])?
        }
        None => items,
    };
    let mut out = String::new();
    for (i, item) in python::items(state, &items)?.enumerate() {
        if i > 0 {
            state.consume_fuel(separator.len() as u64 / 64)?;
            out.push_str(&separator);
        }
        out.push_str(&to_str(state, &item?)?);
    }
    Ok(out)
}

/// `int(value, default=0, base=10)`.
fn int(value: Value, default: Option<i64>, options: Kwargs) -> Result<Value, Error> {
    let default = default.or(options.get("default")?).unwrap_or(0);
    let base: u32 = options.get::<Option<u32>>("base")?.unwrap_or(10);
    options.assert_all_used()?;
    if !(2..=36).contains(&base) {
        return Err(invalid(format!("int() of base {base}, expected 2 to 36")));
    }
    let of_float = |number: f64| number.is_finite().then_some(number.trunc() as i64);
    let number = match value.as_str() {
        None if value.is_integer() => return Ok(value),
        None if value.kind() == ValueKind::Bool => Some(i64::from(value.is_true())),
        None => f64::try_from(value).ok().and_then(of_float),
        Some(text) => {
            let text = text.trim();
            let prefix = match base {
                16 => &["0x", "0X"][..],
                8 => &["0o", "0O"],
                2 => &["0b", "0B"],
                _ => &[],
            };
            let digits = prefix.iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(text);
            let number = i64::from_str_radix(digits, base).ok();
            number.or_else(|| text.parse().ok().and_then(of_float))
        }
    };
    Ok(Value::from(number.unwrap_or(default)))
}

/// `indent(s, width=4, first=False, blank=False)`; the width is a number of spaces, or a text.
fn indent(
    state: &State,
    text: Value,
    width: Option<Value>,
    first: Option<bool>,
    options: Kwargs,
) -> Result<String, Error> {
    let width = width.or(options.get("width")?);
    let first = first.or(options.get("first")?).unwrap_or(false);
    let blank = options.get::<Option<bool>>("blank")?.unwrap_or(false);
    options.assert_all_used()?;
    let margin = match width {
        None => " ".repeat(4),
        Some(width) => python::indentation(width)?,
    };
    let text = to_str(state, &text)?;
    let lines = text.matches('\n').count() as u64 + 1;
    state.consume_fuel(lines * margin.len() as u64 / 64)?;
    let mut out = String::new();
    for (i, line) in text.split('\n').enumerate() {
        out.push_str(if i > 0 { "\n" } else { "" });
        if (i > 0 || first) && (blank || !line.is_empty()) {
            out.push_str(&margin);
        }
        out.push_str(line);
    }
    Ok(out)
}

/// Text for HTML, unless it is that already.
fn escape(state: &State, value: Value) -> Result<Value, Error> {
    if value.is_safe() {
        return Ok(value);
    }
    let mut out = String::new();
    for character in to_str(state, &value)?.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    Ok(Value::from_safe_string(out))
}

/// Text without tags, its white space single.
fn strip_tags(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, tag)) = rest.split_once('<') {
        let Some((_, after)) = tag.split_once('>') else { break };
        plain.push_str(before);
        rest = after;
    }
    plain.push_str(rest);
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Text for a URL; of pairs a query.
fn url_encode(state: &State, value: Value) -> Result<String, Error> {
    let encode = |text: &str, keep_slash: bool| {
        let mut out = String::new();
        for byte in text.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' => {
                    out.push(char::from(byte));
                }
                b'/' if keep_slash => out.push('/'),
                byte => out.push_str(&format!("%{byte:02X}")),
            }
        }
        out
    };
    if value.kind() != ValueKind::Map {
        return Ok(encode(&to_str(state, &value)?, true));
    }
    let mut pairs = Vec::new();
    for key in python::items(state, &value)? {
        let key = key?;
        let member = to_str(state, &value.get_item(&key)?)?;
        let form = |text: &str| encode(text, false).replace("%20", "+");
        pairs.push(format!("{}={}", form(&to_str(state, &key)?), form(&member)));
    }
    Ok(pairs.join("&"))
}
