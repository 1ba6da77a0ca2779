//! Values as Python spells them: `str`, `repr` and `json.dumps`.

use minijinja::value::{Kwargs, Tuple, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use crate::json::python_float;

/// Deeper values are refused, so that none exhausts the stack.
const MAX_DEPTH: usize = 128;

/// The widest indentation.
const MAX_INDENT: usize = 100;

/// The items of a value; each is paid for, since sequences can be longer than they are large.
pub(super) fn items<'a>(
    state: &'a State,
    value: &Value,
) -> Result<impl Iterator<Item = Result<Value, Error>> + use<'a>, Error> {
    let paid = move |item| {
        state.consume_fuel(1)?;
        item
    };
    Ok(value.try_iter()?.checked().map(paid))
}

/// `str(value)`.
pub(super) fn to_str(state: &State, value: &Value) -> Result<String, Error> {
    match value.as_str() {
        Some(text) => {
            state.consume_fuel(text.len() as u64 / 64)?;
            Ok(text.to_owned())
        }
        None => {
            let mut out = String::new();
            write(state, value, &mut out, 0)?;
            Ok(out)
        }
    }
}

/// `repr(value)`.
pub(super) fn to_repr(state: &State, value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    write(state, value, &mut out, 0)?;
    Ok(out)
}

fn write(state: &State, value: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(invalid(format!("values nested deeper than {MAX_DEPTH} levels")));
    }
    match value.kind() {
        ValueKind::Undefined => {}
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            // Characters are looked at one by one.
            state.consume_fuel(text.len() as u64 / 8)?;
            quote(text, out);
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in items(state, value)?.enumerate() {
                let key = key?;
                out.push_str(if i > 0 { ", " } else { "" });
                write(state, &key, out, depth + 1)?;
                out.push_str(": ");
                write(state, &value.get_item(&key)?, out, depth + 1)?;
            }
            out.push('}');
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let tuple = value.downcast_object_ref::<Tuple>();
            out.push(if tuple.is_some() { '(' } else { '[' });
            let mut count = 0;
            for (i, item) in items(state, value)?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                write(state, &item?, out, depth + 1)?;
                count = i + 1;
            }
            out.push_str(match tuple {
                Some(_) if count == 1 => ",)",
                Some(_) => ")",
                None => "]",
            });
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

/// A number; floats by `repr`.
fn number(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(number) if !value.is_integer() && number.is_nan() => "nan".to_owned(),
        Ok(number) if !value.is_integer() => python_float(number),
        _ => value.to_string(),
    }
}

/// A text in the quotes that Python chooses.
fn quote(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            found if found == quote => out.extend(['\\', found]),
            found if found < ' ' || found == '\u{7f}' => {
                out.push_str(&format!("\\x{:02x}", u32::from(found)));
            }
            found => out.push(found),
        }
    }
    out.push(quote);
}

/// How `json.dumps` spells a value.
struct JsonStyle<'a> {
    state: &'a State<'a, 'a>,
    ensure_ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`; nothing is
/// HTML-escaped.
pub(super) fn to_json(
    state: &State,
    value: &Value,
    ensure_ascii: Option<bool>,
    options: Kwargs,
) -> Result<String, Error> {
    let ensure_ascii = match options.get::<Option<bool>>("ensure_ascii")? {
        Some(ensure_ascii) => Some(ensure_ascii),
        None => ensure_ascii,
    };
    let indent = options.get::<Option<Value>>("indent")?.filter(|indent| !indent.is_none());
    let indent = indent.map(indentation).transpose()?;
    let separators = options.get::<Option<Value>>("separators")?.filter(|pair| !pair.is_none());
    let (item_separator, key_separator) = match separators {
        Some(pair) => (
            to_str(state, &pair.get_item_by_index(0)?)?,
            to_str(state, &pair.get_item_by_index(1)?)?,
        ),
        // With line breaks no space stands before them.
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let sort_keys = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    options.assert_all_used()?;
    let ensure_ascii = ensure_ascii.unwrap_or(false);
    let style = JsonStyle { state, ensure_ascii, indent, item_separator, key_separator, sort_keys };
    let mut out = String::new();
    style.write(value, &mut out, 0)?;
    Ok(out)
}

/// The indentation of a level: so many spaces, or a text.
pub(super) fn indentation(indent: Value) -> Result<String, Error> {
    match indent.as_str() {
        Some(text) if text.len() <= MAX_INDENT => Ok(text.to_owned()),
        Some(_) => Err(invalid(format!("an indent of more than {MAX_INDENT} characters"))),
        None => match usize::try_from(i64::try_from(indent)?.max(0)) {
            Ok(spaces) if spaces <= MAX_INDENT => Ok(" ".repeat(spaces)),
            _ => Err(invalid(format!("an indent of more than {MAX_INDENT} spaces"))),
        },
    }
}

impl JsonStyle<'_> {
    fn write(&self, value: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid(format!("values nested deeper than {MAX_DEPTH} levels")));
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(match number(value).as_str() {
                "inf" => "Infinity",
                "-inf" => "-Infinity",
                "nan" => "NaN",
                text => text,
            }),
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), out)?,
            ValueKind::Seq | ValueKind::Iterable => {
                self.list('[', items(self.state, value)?, ']', out, depth, |item, out| {
                    self.write(&item, out, depth + 1)
                })?
            }
            ValueKind::Map => {
                let mut members = Vec::new();
                for key in items(self.state, value)? {
                    let key = key?;
                    members.push((self.key(&key)?, value.get_item(&key)?));
                }
                if self.sort_keys {
                    members.sort_by(|(one, _), (other, _)| one.cmp(other));
                }
                let members = members.into_iter().map(Ok);
                self.list('{', members, '}', out, depth, |(key, member), out| {
                    self.string(&key, out)?;
                    out.push_str(&self.key_separator);
                    self.write(&member, out, depth + 1)
                })?;
            }
            kind => return Err(invalid(format!("{kind} is not JSON serializable"))),
        }
        Ok(())
    }

    fn list<T>(
        &self,
        open: char,
        items: impl Iterator<Item = Result<T, Error>>,
        close: char,
        out: &mut String,
        depth: usize,
        mut write: impl FnMut(T, &mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut is_empty = true;
        out.push(open);
        for item in items {
            if !std::mem::replace(&mut is_empty, false) {
                out.push_str(&self.item_separator);
            }
            self.line(depth + 1, out)?;
            write(item?, out)?;
        }
        if !is_empty {
            self.line(depth, out)?;
        }
        out.push(close);
        Ok(())
    }

    fn line(&self, depth: usize, out: &mut String) -> Result<(), Error> {
        if let Some(indent) = &self.indent {
            self.state.consume_fuel((depth * indent.len()) as u64 / 64)?;
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
        Ok(())
    }

    /// A key: a string, or what Python makes one of.
    fn key(&self, key: &Value) -> Result<String, Error> {
        match key.kind() {
            ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
            ValueKind::None => Ok("null".to_owned()),
            ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_owned()),
            ValueKind::Number => Ok(number(key)),
            kind => Err(invalid(format!("keys must be strings or numbers, found {kind}"))),
        }
    }

    fn string(&self, text: &str, out: &mut String) -> Result<(), Error> {
        self.state.consume_fuel(text.len() as u64 / 64)?;
        let mut quoted = String::new();
        crate::json::quote(text, &mut quoted);
        if !self.ensure_ascii {
            out.push_str(&quoted);
            return Ok(());
        }
        for character in quoted.chars() {
            if (' '..='~').contains(&character) {
                out.push(character);
            } else {
                let units = &mut [0; 2];
                for unit in character.encode_utf16(units) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
        Ok(())
    }
}

/// An error of a template's operation.
pub(super) fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}
