//! A JSON object of settings that knows the full path of its keys for messages.

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::folder::SourceFile;
use crate::settings::{Settings, max};

/// A JSON object in a file.
#[derive(Debug)]
pub(crate) struct Object {
    file: String,
    /// Path of the object in the file with a trailing dot; empty for the outermost.
    prefix: String,
    members: Map<String, Value>,
}

impl Object {
    pub(crate) fn parse(file: &SourceFile) -> Result<Self> {
        let members = serde_json::from_slice(file.text()?).map_err(|error| Error::Malformed {
            file: file.name.clone(),
            location: "JSON".to_owned(),
            found: error.to_string(),
            expected: "a JSON object".to_owned(),
        })?;
        Ok(Self { file: file.name.clone(), prefix: String::new(), members })
    }

    /// The member, unless it is absent or null.
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

    /// The object under a required key.
    pub(crate) fn require_object(&self, key: &str) -> Result<Self> {
        self.object(key)?.ok_or_else(|| self.wrong(key, "nothing", "an object"))
    }

    /// Whether the key is present and not null.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.member(key).is_some()
    }

    /// The array under a key. `item` reads one item; `what` names the items in errors.
    pub(crate) fn array<T>(
        &self,
        key: &str,
        what: &str,
        item: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>> {
        let Some(value) = self.member(key) else { return Ok(None) };
        let items =
            value.as_array().ok_or_else(|| self.mistyped(key, &format!("an array of {what}")))?;
        let wrong = |value: &Value| self.wrong(key, brief(value), format!("an array of {what}"));
        items
            .iter()
            .map(|value| item(value).ok_or_else(|| wrong(value)))
            .collect::<Result<_>>()
            .map(Some)
    }

    /// Token ids: one number or an array of them.
    pub(crate) fn tokens(&self, key: &str) -> Result<Option<Vec<u32>>> {
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        match self.member(key) {
            Some(Value::Array(_)) => self.array(key, "token ids", id),
            Some(value) => match id(value) {
                Some(id) => Ok(Some(vec![id])),
                None => Err(self.mistyped(key, "a token id or an array of them")),
            },
            None => Ok(None),
        }
    }

    /// The number of layers.
    pub(crate) fn layer_count(&self) -> Result<usize> {
        self.size("num_hidden_layers", max::LAYERS)
    }

    /// An array with one entry per layer. `item` reads one entry; `what` names them in errors.
    pub(crate) fn per_layer<T>(
        &self,
        key: &str,
        what: &str,
        layers: usize,
        item: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>> {
        let array = self.array(key, what, item)?;
        match &array {
            Some(array) if array.len() != layers => {
                let found = format!("an array of {}", array.len());
                Err(self.wrong(key, found, format!("{layers}, one per layer")))
            }
            _ => Ok(array),
        }
    }

    /// The base of the rope frequencies: in an object in newer files, a number in older ones.
    pub(crate) fn rope_theta(&self, types: &[&str]) -> Result<f32> {
        const KEY: &str = "rope_parameters";
        match self.object(KEY)? {
            Some(rope) => {
                rope.only("rope_type", types)?;
                rope.positive("rope_theta", 1e12)
            }
            None => match self.optional_positive("rope_theta", 1e12)? {
                Some(theta) => Ok(theta),
                None => Err(self.wrong(KEY, "nothing", "an object with rope_theta")),
            },
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
        self.typed(key, "an integer that is not negative", Value::as_u64)
    }

    fn number(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", Value::as_f64)
    }

    fn string(&self, key: &str) -> Result<Option<String>> {
        self.typed(key, "a string", |value| value.as_str().map(str::to_owned))
    }

    fn boolean(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }
}

/// A value as messages show it.
fn brief(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(items) => format!("an array of {} items", items.len()),
        value => crate::error::escaped(&value.to_string()),
    }
}
