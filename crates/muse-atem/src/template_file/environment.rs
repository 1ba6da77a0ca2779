//! The functions, filters and white space rules that transformers gives chat templates.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Rest;
use minijinja::{Environment, Error, ErrorKind, Output, State, Value};

use super::clock::strftime_now;
use super::dict::Dict;
use super::{filters, methods, operators, python, rewrite};
use crate::json::Json;

/// How templates are written: a line that holds a block alone leaves nothing.
pub(super) fn syntax() -> SyntaxConfig {
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    syntax.expect("the default delimiters are sound")
}

/// The environment of a template.
pub(super) fn transformers() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_syntax(syntax());
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(methods::call);
    environment.set_formatter(print);
    environment.add_filter("tojson", python::to_json);
    filters::add(&mut environment);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", strftime_now);
    environment.add_function("dict", methods::dict);
    environment
        .add_function("cycler", |items: Rest<Value>| minijinja_contrib::globals::cycler(items.0));
    environment.add_function("joiner", minijinja_contrib::globals::joiner);
    environment.add_function(rewrite::PERCENT, operators::percent);
    environment.add_function(rewrite::CONCAT, operators::concat);
    environment.add_function(rewrite::ADD, operators::add);
    environment
}

/// Prints values as Python's `str` does.
fn print(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    let written = match value.as_str() {
        Some(text) => out.write_str(text),
        None => out.write_str(&python::to_str(state, value)?),
    };
    written.map_err(|_| Error::from(ErrorKind::WriteFailure))
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
            let members = members.iter().map(|(key, member)| (key.clone(), value(member)));
            Value::from_object(Dict::new(members))
        }
    }
}
