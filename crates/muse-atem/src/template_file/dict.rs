//! Objects of a conversation as Python's dicts: their methods are found before their keys.

use std::collections::HashMap;
use std::sync::Arc;

use minijinja::value::{Enumerator, Object, ObjectRepr, Tuple, from_args};
use minijinja::{Error, ErrorKind, State, Value};

use super::python::items;

/// Members in their order.
#[derive(Debug)]
pub(super) struct Dict {
    members: Vec<(Value, Value)>,
    places: HashMap<String, usize>,
}

impl Dict {
    /// A dict of members with different keys.
    pub(super) fn new(members: impl Iterator<Item = (String, Value)>) -> Self {
        let mut dict = Self { members: Vec::new(), places: HashMap::new() };
        for (key, value) in members {
            dict.members.push((Value::from(key.as_str()), value));
            dict.places.insert(key, dict.members.len() - 1);
        }
        dict
    }
}

impl Object for Dict {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let place = self.places.get(key.as_str()?)?;
        Some(self.members[*place].1.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.members.iter().map(|(key, _)| key.clone()).collect())
    }

    fn call_method(
        self: &Arc<Self>,
        state: &mut State<'_, '_>,
        method: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        call(state, &Value::from_dyn_object(Arc::clone(self)), method, args)
    }
}

/// Calls a method of a dict.
pub(super) fn call(
    state: &State,
    dict: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let keys = || items(state, dict);
    match method {
        "keys" => {
            let () = from_args(args)?;
            keys()?.collect()
        }
        "values" => {
            let () = from_args(args)?;
            keys()?.map(|key| dict.get_item(&key?)).collect()
        }
        "items" => {
            let () = from_args(args)?;
            let pair = |key: Result<Value, Error>| {
                let key = key?;
                let value = dict.get_item(&key)?;
                Ok(Value::from(Tuple::from([key, value])))
            };
            keys()?.map(pair).collect()
        }
        "get" => {
            let (key, default): (Value, Option<Value>) = from_args(args)?;
            let found = dict.get_item(&key)?;
            Ok(if found.is_undefined() { default.unwrap_or(Value::from(())) } else { found })
        }
        "copy" => {
            let () = from_args(args)?;
            Ok(dict.clone())
        }
        "clear" | "pop" | "popitem" | "setdefault" | "update" => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("{method}() would change a dict, which templates must not"),
        )),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}
