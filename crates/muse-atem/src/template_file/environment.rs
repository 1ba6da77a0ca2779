//! The functions, filters and white space rules that transformers gives chat templates.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value, escape_formatter};

use crate::json::{Json, Number, python_float};

pub(super) fn hugging_face() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the default delimiters are sound"));
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(print);
    environment.add_filter("tojson", to_json);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", strftime_now);
    environment
}

/// Prints values as Python's `str` does.
fn print(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    let written = match value.kind() {
        ValueKind::None => out.write_str("None"),
        ValueKind::Bool if value.is_true() => out.write_str("True"),
        ValueKind::Bool => out.write_str("False"),
        ValueKind::Number if !value.is_integer() => match f64::try_from(value.clone()) {
            Ok(number) => out.write_str(&python_float(number)),
            Err(_) => return escape_formatter(out, state, value),
        },
        _ => return escape_formatter(out, state, value),
    };
    written.map_err(|_| Error::from(ErrorKind::WriteFailure))
}

/// `json.dumps(value, ensure_ascii=False)`; nothing is HTML-escaped.
fn to_json(value: &Value, options: Kwargs) -> Result<String, Error> {
    for option in ["indent", "separators", "sort_keys"] {
        if options.peek::<Option<Value>>(option).ok().flatten().is_some_and(|set| set.is_true()) {
            let message = format!("tojson({option}=…) is not supported");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
    }
    Ok(json(value)?.to_python())
}

/// A JSON value as a template value; integers of up to 128 bits stay exact.
pub(super) fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(truth) => Value::from(*truth),
        Json::Number(number) => match (number.to_i64(), number.text().parse::<i128>()) {
            (Some(whole), _) => Value::from(whole),
            (None, Ok(whole)) => Value::from(whole),
            (None, Err(_)) => Value::from(number.to_f64()),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => items.iter().map(value).collect(),
        Json::Object(members) => {
            Value::from_pairs(members.iter().map(|(key, member)| (key.as_str(), value(member))))
        }
    }
}

fn json(value: &Value) -> Result<Json, Error> {
    let refuse = |what: &str| {
        Err(Error::new(ErrorKind::InvalidOperation, format!("{what} is not JSON serializable")))
    };
    Ok(match value.kind() {
        ValueKind::None => Json::Null,
        ValueKind::Bool => Json::Bool(value.is_true()),
        ValueKind::Number => {
            let spelling = match f64::try_from(value.clone()) {
                Ok(number) if !value.is_integer() => python_float(number),
                _ => value.to_string(),
            };
            match Number::parse(&spelling) {
                Some(number) => Json::Number(number),
                None => return refuse(&spelling),
            }
        }
        ValueKind::String => Json::String(value.to_string()),
        ValueKind::Seq | ValueKind::Iterable => {
            Json::Array(value.try_iter()?.map(|item| json(&item)).collect::<Result<_, _>>()?)
        }
        ValueKind::Map => {
            let members = value.try_iter()?.map(|key| {
                let member = value.get_item(&key)?;
                Ok((key.to_string(), json(&member)?))
            });
            Json::Object(members.collect::<Result<_, Error>>()?)
        }
        kind => return refuse(&kind.to_string()),
    })
}

/// Formats the conversation's date. Templates have no clock, so that the date of a conversation
/// does not change.
fn strftime_now(state: &State, format: &str) -> Result<String, Error> {
    let date = state.lookup(DATE).and_then(|date| date.as_str().map(str::to_owned));
    let parts = date.as_deref().map(|date| date.split('-').collect::<Vec<_>>());
    let Some([year, month, day]) = parts.as_deref() else {
        return Ok(date.unwrap_or_default());
    };
    let name = month.parse::<usize>().ok().and_then(|month| MONTHS.get(month.checked_sub(1)?));
    Ok(format
        .replace("%Y", year)
        .replace("%m", month)
        .replace("%d", day)
        .replace("%B", name.unwrap_or(month))
        .replace("%b", name.map_or(month, |name| &name[..3])))
}

/// The variable that holds the date.
pub(super) const DATE: &str = "current_date";

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
