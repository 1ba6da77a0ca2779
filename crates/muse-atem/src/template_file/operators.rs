//! Python's operators that are more than minijinja's.

use minijinja::value::{Tuple, ValueKind};
use minijinja::{Error, State, Value};

use super::format;
use super::python::{invalid, items, to_str};

/// `left % right`: formats a string, or the remainder of numbers.
pub(super) fn percent(state: &State, left: Value, right: Value) -> Result<Value, Error> {
    match left.as_str() {
        Some(text) => format::percent(state, text, &right).map(Value::from),
        None => remainder(&left, &right),
    }
}

fn remainder(left: &Value, right: &Value) -> Result<Value, Error> {
    if let (true, true) = (left.is_integer(), right.is_integer())
        && let (Ok(left), Ok(right)) = (i128::try_from(left.clone()), i128::try_from(right.clone()))
    {
        return match right {
            0 => Err(invalid("% by zero".to_owned())),
            right => {
                let rest = left % right;
                let rest = if rest != 0 && (rest < 0) != (right < 0) { rest + right } else { rest };
                Ok(i64::try_from(rest).map_or_else(|_| Value::from(rest), Value::from))
            }
        };
    }
    match (f64::try_from(left.clone()), f64::try_from(right.clone())) {
        (Ok(_), Ok(0.0)) => Err(invalid("% by zero".to_owned())),
        (Ok(left), Ok(right)) => {
            let rest = left % right;
            let differ = rest != 0.0 && (rest < 0.0) != (right < 0.0);
            Ok(Value::from(if differ { rest + right } else { rest }))
        }
        _ => {
            let (left, right) = (left.kind(), right.kind());
            Err(invalid(format!(
                "% takes numbers, or a string before it, found {left} and {right}"
            )))
        }
    }
}

/// `left ~ right`: both as `str` spells them.
pub(super) fn concat(state: &State, left: Value, right: Value) -> Result<String, Error> {
    let mut text = to_str(state, &left)?;
    text.push_str(&to_str(state, &right)?);
    Ok(text)
}

/// `left + right`: numbers, strings, lists or tuples. Lists are joined at once, and paid for.
pub(super) fn add(state: &State, left: Value, right: Value) -> Result<Value, Error> {
    if let (Some(left), Some(right)) = (left.as_str(), right.as_str()) {
        state.consume_fuel((left.len() + right.len()) as u64 / 64)?;
        return Ok(Value::from([left, right].concat()));
    }
    let is_list = |value: &Value| matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
    let is_tuple = |value: &Value| value.downcast_object_ref::<Tuple>().is_some();
    if is_list(&left) && is_list(&right) && is_tuple(&left) == is_tuple(&right) {
        let all = items(state, &left)?.chain(items(state, &right)?);
        let all = all.collect::<Result<Vec<_>, _>>()?;
        return Ok(if is_tuple(&left) { Value::from(Tuple::new(all)) } else { Value::from(all) });
    }
    if let (Some(left), Some(right)) = (integer(&left), integer(&right)) {
        let sum =
            left.checked_add(right).ok_or_else(|| invalid("the sum is too large".to_owned()))?;
        return Ok(i64::try_from(sum).map_or_else(|_| Value::from(sum), Value::from));
    }
    match (number(&left), number(&right)) {
        (Some(left), Some(right)) => Ok(Value::from(left + right)),
        _ => {
            let (left, right) = (left.kind(), right.kind());
            Err(invalid(format!("+ takes two numbers, strings or lists, found {left} and {right}")))
        }
    }
}

/// An integer, or a boolean as one.
fn integer(value: &Value) -> Option<i128> {
    match value.kind() {
        ValueKind::Bool => Some(i128::from(value.is_true())),
        ValueKind::Number if value.is_integer() => i128::try_from(value.clone()).ok(),
        _ => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    match value.kind() {
        ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        _ => None,
    }
}
