//! A JSON object of settings, with the path of its keys for messages.

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::folder::SourceFile;
use crate::settings::Settings;

/// A JSON object of a file.
#[derive(Debug)]
pub(crate) struct Object {
    file: String,
    /// Path of the object in the file, with its trailing dot.
    prefix: String,
    members: Map<String, Value>,
}

impl Object {
    pub(crate) fn parse(file: &SourceFile) -> Result<Self> {
        let members = serde_json::from_slice(&file.bytes).map_err(|error| Error::Malformed {
            file: file.name.clone(),
            place: "JSON".to_owned(),
            found: error.to_string(),
            expected: "a JSON object".to_owned(),
        })?;
        Ok(Self { file: file.name.clone(), prefix: String::new(), members })
    }

    /// A member that is there and not null.
    fn member(&self, key: &str) -> Option<&Value> {
        self.members.get(key).filter(|value| !value.is_null())
    }

    /// The object under a key.
    pub(crate) fn object(&self, key: &str) -> Result<Option<Self>> {
        let Some(value) = self.member(key) else { return Ok(None) };
        let members = value.as_object().ok_or_else(|| self.mistyped(key, "an object"))?;
        let prefix = format!("{}{key}.", self.prefix);
        Ok(Some(Self { file: self.file.clone(), prefix, members: members.clone() }))
    }

    /// The object under a key that must be there.
    pub(crate) fn demand_object(&self, key: &str) -> Result<Self> {
        self.object(key)?.ok_or_else(|| self.wrong(key, "nothing", "an object"))
    }

    /// Whether the key is there and not null.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.member(key).is_some()
    }

    /// The list under a key, each item read by `item`, which `what` describes.
    pub(crate) fn list<T>(
        &self,
        key: &str,
        what: &str,
        item: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>> {
        let Some(value) = self.member(key) else { return Ok(None) };
        let items =
            value.as_array().ok_or_else(|| self.mistyped(key, &format!("a list of {what}")))?;
        let wrong = |value: &Value| self.wrong(key, brief(value), format!("a list of {what}"));
        items
            .iter()
            .map(|value| item(value).ok_or_else(|| wrong(value)))
            .collect::<Result<_>>()
            .map(Some)
    }

    /// One number or a list of them.
    pub(crate) fn tokens(&self, key: &str) -> Result<Option<Vec<u32>>> {
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        match self.member(key) {
            Some(Value::Array(_)) => self.list(key, "token ids", id),
            Some(value) => match id(value) {
                Some(id) => Ok(Some(vec![id])),
                None => Err(self.mistyped(key, "a token id or a list of them")),
            },
            None => Ok(None),
        }
    }

    fn mistyped(&self, key: &str, expected: &str) -> Error {
        self.wrong(key, self.member(key).map_or("nothing".to_owned(), brief), expected)
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let value = self.member(key);
        value.map(|value| read(value).ok_or_else(|| self.mistyped(key, expected))).transpose()
    }
}

impl Settings for Object {
    fn locate(&self, key: &str) -> (String, String) {
        (self.file.clone(), format!("{}{key}", self.prefix))
    }

    fn integer(&self, key: &str) -> Result<Option<u64>> {
        self.typed(key, "a whole number that is not negative", Value::as_u64)
    }

    fn number(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", Value::as_f64)
    }

    fn text(&self, key: &str) -> Result<Option<String>> {
        self.typed(key, "a text", |value| value.as_str().map(str::to_owned))
    }

    fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }
}

/// A value as messages show it.
fn brief(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(items) => format!("a list of {} items", items.len()),
        value => crate::error::shown(&value.to_string()),
    }
}
