//! Python's two ways to format texts: `format % values` and `format.format(…)`.

use minijinja::formatting::{FormatStyle, format};
use minijinja::value::{Kwargs, Tuple, ValueKind, from_args};
use minijinja::{Error, State, Value};

use super::python::{invalid, items, to_repr, to_str};

/// The widest field, and the most digits behind the point.
const MAX_WIDTH: usize = 10_000;

/// `format % values`.
pub(super) fn percent(state: &State, text: &str, values: &Value) -> Result<String, Error> {
    let is_tuple = values.downcast_object_ref::<Tuple>().is_some();
    let mut next = match is_tuple {
        true => items(state, values)?.collect::<Result<Vec<_>, _>>()?,
        false => vec![values.clone()],
    }
    .into_iter();
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let (field, after) = Field::parse(&rest[at + 1..])?;
        rest = after;
        if field.kind == '%' {
            out.push('%');
            continue;
        }
        let mut take = || {
            next.next().ok_or_else(|| invalid(format!("too few values for the format {text:?}")))
        };
        let width =
            if field.width == "*" { to_str(state, &take()?)? } else { field.width.to_owned() };
        let value = match field.key {
            Some(key) => match values.get_item(&Value::from(key))? {
                value if value.is_undefined() => {
                    return Err(invalid(format!("the format names {key:?}, which was not given")));
                }
                value => value,
            },
            None => take()?,
        };
        out.push_str(&field.print(state, &value, &width)?);
    }
    out.push_str(rest);
    // A mapping may hold more than the format takes.
    if next.len() > 0 && (is_tuple || values.kind() != ValueKind::Map) {
        return Err(invalid(format!("too many values for the format {text:?}")));
    }
    Ok(out)
}

/// `%[(key)][flags][width][.precision]kind`
struct Field<'a> {
    key: Option<&'a str>,
    flags: &'a str,
    width: &'a str,
    precision: Option<&'a str>,
    kind: char,
}

impl<'a> Field<'a> {
    /// The field that a text begins with, and what is behind it.
    fn parse(text: &'a str) -> Result<(Self, &'a str), Error> {
        let incomplete = || invalid("a format ends within a field".to_owned());
        let (key, text) = match text.strip_prefix('(') {
            None => (None, text),
            Some(text) => {
                let (key, text) = text.split_once(')').ok_or_else(incomplete)?;
                (Some(key), text)
            }
        };
        let take = |text: &'a str, fits: fn(char) -> bool| {
            text.split_at(text.find(|character| !fits(character)).unwrap_or(text.len()))
        };
        let (flags, text) = take(text, |character| "-+ 0#".contains(character));
        let (width, text) = match text.strip_prefix('*') {
            Some(rest) => (&text[..1], rest),
            None => take(text, |character| character.is_ascii_digit()),
        };
        let (precision, text) = match text.strip_prefix('.') {
            None => (None, text),
            Some(text) => {
                let (digits, text) = take(text, |character| character.is_ascii_digit());
                (Some(digits), text)
            }
        };
        let text = text.trim_start_matches(['h', 'l', 'L']);
        let kind = text.chars().next().ok_or_else(incomplete)?;
        Ok((Self { key, flags, width, precision, kind }, &text[kind.len_utf8()..]))
    }

    fn print(&self, state: &State, value: &Value, width: &str) -> Result<String, Error> {
        let bound = |digits: &str| match digits {
            "" => Ok(0),
            digits => digits.parse().ok().filter(|count| *count <= MAX_WIDTH).ok_or_else(|| {
                invalid(format!("a field of {digits:.20} characters, at most {MAX_WIDTH}"))
            }),
        };
        let (width, precision) = (bound(width)?, self.precision.map(bound).transpose()?);
        let text = match self.kind {
            's' => to_str(state, value)?,
            'r' | 'a' => to_repr(state, value)?,
            'c' => match value.as_str() {
                Some(text) if text.chars().count() == 1 => text.to_owned(),
                Some(_) => return Err(invalid("%c takes a single character".to_owned())),
                None => {
                    let code = u32::try_from(value.clone()).ok().and_then(char::from_u32);
                    code.map(String::from)
                        .ok_or_else(|| invalid("%c takes a character".to_owned()))?
                }
            },
            'd' | 'i' | 'u' => return self.number('d', &whole(value)?, width, precision),
            'o' | 'x' | 'X' if value.is_integer() || value.kind() == ValueKind::Bool => {
                return self.number(self.kind, &whole(value)?, width, precision);
            }
            'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
                let number =
                    f64::try_from(whole_bool(value)).map_err(|_| wrong(self.kind, value))?;
                return self.number(self.kind, &Value::from(number), width, precision);
            }
            'o' | 'x' | 'X' => return Err(wrong(self.kind, value)),
            kind => return Err(invalid(format!("there is no format %{kind}"))),
        };
        let text: String = match precision {
            Some(precision) => text.chars().take(precision).collect(),
            None => text,
        };
        let missing = " ".repeat(width.saturating_sub(text.chars().count()));
        Ok(if self.flags.contains('-') { text + &missing } else { missing + &text })
    }

    fn number(
        &self,
        kind: char,
        value: &Value,
        width: usize,
        precision: Option<usize>,
    ) -> Result<String, Error> {
        let width = if width > 0 { width.to_string() } else { String::new() };
        let precision = precision.map(|precision| format!(".{precision}")).unwrap_or_default();
        let spec = format!("%{}{width}{precision}{kind}", self.flags);
        format(FormatStyle::Printf, &spec, std::slice::from_ref(value))
    }
}

fn wrong(kind: char, value: &Value) -> Error {
    invalid(format!("%{kind} takes a number, found {}", value.kind()))
}

/// A boolean as the number that Python takes it for.
fn whole_bool(value: &Value) -> Value {
    match value.kind() {
        ValueKind::Bool => Value::from(i64::from(value.is_true())),
        _ => value.clone(),
    }
}

/// A number without its fraction.
fn whole(value: &Value) -> Result<Value, Error> {
    let value = whole_bool(value);
    match value.kind() {
        ValueKind::Number if value.is_integer() => Ok(value),
        ValueKind::Number => match f64::try_from(value.clone()) {
            Ok(number) if number.is_finite() && number.abs() < 1e18 => {
                Ok(Value::from(number.trunc() as i64))
            }
            _ => Err(wrong('d', &value)),
        },
        _ => Err(wrong('d', &value)),
    }
}

/// `text.format(*args, **members)`.
pub(super) fn braces(state: &State, text: &str, args: &[Value]) -> Result<String, Error> {
    let (args, members): (&[Value], Kwargs) = match args.split_last() {
        Some((last, rest)) if last.is_kwargs() => {
            (rest, from_args::<(Kwargs,)>(&args[rest.len()..])?.0)
        }
        _ => (args, Kwargs::from_iter(std::iter::empty::<(String, Value)>())),
    };
    let mut out = String::new();
    let (mut rest, mut next) = (text, 0);
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            out.push_str(brace);
            rest = after;
            continue;
        }
        let Some((field, after)) = rest.split_once('}').filter(|_| brace == "{") else {
            return Err(invalid(format!("a brace of the format {text:?} stands alone")));
        };
        rest = after;
        let (name, spec) = field.split_once(':').unwrap_or((field, ""));
        let (name, conversion) = name.split_once('!').unwrap_or((name, ""));
        let value = argument(name, args, &members, &mut next)?;
        let value = match conversion {
            "" => value,
            "s" => Value::from(to_str(state, &value)?),
            "r" | "a" => Value::from(to_repr(state, &value)?),
            other => return Err(invalid(format!("there is no conversion !{other}"))),
        };
        out.push_str(&spelled(state, &value, spec)?);
    }
    out.push_str(rest);
    Ok(out)
}

/// The value that a field names: by its number, its name, or in turn.
fn argument(
    path: &str,
    args: &[Value],
    members: &Kwargs,
    next: &mut usize,
) -> Result<Value, Error> {
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (name, mut path) = path.split_at(end);
    let index = match name {
        "" => {
            *next += 1;
            Some(*next - 1)
        }
        name => name.parse().ok(),
    };
    let missing = || invalid(format!("the format names {name:?}, which was not given"));
    let mut value = match index {
        Some(index) => args.get(index).cloned().ok_or_else(missing)?,
        None => members.get::<Option<Value>>(name)?.ok_or_else(missing)?,
    };
    while !path.is_empty() {
        let (step, rest) = match path.strip_prefix('[') {
            Some(inner) => inner.split_once(']').ok_or_else(missing)?,
            None => {
                let inner = &path[1..];
                inner.split_at(inner.find(['.', '[']).unwrap_or(inner.len()))
            }
        };
        value = match step.parse::<usize>() {
            Ok(index) => value.get_item_by_index(index)?,
            Err(_) => value.get_item(&Value::from(step))?,
        };
        path = rest;
    }
    Ok(value)
}

/// A value by the specification of a field.
fn spelled(state: &State, value: &Value, spec: &str) -> Result<String, Error> {
    let digits = |text: &str| text.bytes().filter(u8::is_ascii_digit).count();
    if digits(spec) > 8 || spec.split(|c: char| !c.is_ascii_digit()).any(is_too_wide) {
        return Err(invalid(format!("the field {spec:.20?} is wider than {MAX_WIDTH} characters")));
    }
    match value.kind() {
        _ if spec.is_empty() => to_str(state, value),
        ValueKind::Number if spec.ends_with('%') => {
            let share = f64::try_from(value.clone())? * 100.0;
            let spec = format!("{}f", spec.trim_end_matches('%'));
            Ok(spelled(state, &Value::from(share), &spec)? + "%")
        }
        ValueKind::Number | ValueKind::String => {
            format(FormatStyle::StrFormat, &format!("{{:{spec}}}"), std::slice::from_ref(value))
        }
        kind => Err(invalid(format!("{kind} takes no format {spec:?}"))),
    }
}

fn is_too_wide(digits: &str) -> bool {
    digits.parse::<usize>().is_ok_and(|width| width > MAX_WIDTH)
}
