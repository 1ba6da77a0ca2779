//! Typed access to the fields of an object, with the path of each for error messages.

use super::error::RequestError;
use crate::json::Json;

/// An object and its path in the request.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields<'a> {
    members: &'a [(String, Json)],
    path: String,
}

impl<'a> Fields<'a> {
    /// The body of a request.
    pub(super) fn whole(body: &'a Json) -> Result<Self, RequestError> {
        Self::of(body, String::new())
    }

    /// An object at `path`.
    pub(super) fn of(value: &'a Json, path: String) -> Result<Self, RequestError> {
        match value {
            Json::Object(members) => Ok(Self { members, path }),
            other => Err(wrong(path, "an object", other)),
        }
    }

    /// The path of a field.
    pub(super) fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// An error about a field.
    pub(super) fn error<T>(
        &self,
        key: &str,
        message: impl Into<String>,
    ) -> Result<T, RequestError> {
        Err(RequestError { path: self.path(key), message: message.into() })
    }

    /// A field as it was sent, `null` included.
    pub(super) fn raw(&self, key: &str) -> Option<&'a Json> {
        self.members.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// A field; `null` counts as absent.
    pub(super) fn value(&self, key: &str) -> Option<&'a Json> {
        self.raw(key).filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, RequestError> {
        self.typed(key, "a string", Json::as_str)
    }

    /// A text that must be present.
    pub(super) fn required_text(&self, key: &str) -> Result<&'a str, RequestError> {
        match self.text(key)? {
            Some(text) => Ok(text),
            None => self.error(key, "is missing, expected a string"),
        }
    }

    pub(super) fn boolean(&self, key: &str) -> Result<Option<bool>, RequestError> {
        self.typed(key, "a boolean", Json::as_bool)
    }

    pub(super) fn list(&self, key: &str) -> Result<Option<&'a [Json]>, RequestError> {
        self.typed(key, "a list", Json::as_array)
    }

    pub(super) fn object(&self, key: &str) -> Result<Option<Fields<'a>>, RequestError> {
        self.value(key).map(|value| Fields::of(value, self.path(key))).transpose()
    }

    /// A number within bounds, both included.
    pub(super) fn number(
        &self,
        key: &str,
        min: f64,
        max: f64,
    ) -> Result<Option<f32>, RequestError> {
        self.value(key).map(|value| number(value, || self.path(key), min, max)).transpose()
    }

    /// A whole number within bounds, both included.
    pub(super) fn whole_number(
        &self,
        key: &str,
        min: u32,
        max: u32,
    ) -> Result<Option<u32>, RequestError> {
        let Some(number) = self.typed(key, "a whole number", Json::as_number)? else {
            return Ok(None);
        };
        match number.to_whole().and_then(|value| u32::try_from(value).ok()) {
            Some(value) if (min..=max).contains(&value) => Ok(Some(value)),
            _ => {
                let found = number.text();
                self.error(key, format!("is {found}, expected a whole number {min} to {max}"))
            }
        }
    }

    /// A whole number from `min` on; -1 means no limit.
    pub(super) fn limit(&self, key: &str, min: u32) -> Result<Option<u32>, RequestError> {
        match self.value(key) {
            Some(Json::Number(number)) if number.to_whole() == Some(-1) => Ok(None),
            _ => self.whole_number(key, min, u32::MAX),
        }
    }

    /// A whole number of 64 bits, negative ones included; -1 means a random one.
    pub(super) fn seed(&self, key: &str) -> Result<Option<u64>, RequestError> {
        let Some(number) = self.typed(key, "a whole number", Json::as_number)? else {
            return Ok(None);
        };
        let whole = || number.to_whole().map(i64::cast_unsigned);
        match number.to_u64().or_else(whole) {
            Some(u64::MAX) if number.text().starts_with('-') => Ok(None),
            Some(seed) => Ok(Some(seed)),
            None => {
                self.error(key, format!("is {}, expected a whole number of 64 bits", number.text()))
            }
        }
    }

    /// The members of the object, for objects whose keys are not known: looking each up by its key
    /// would take quadratic time.
    pub(super) fn members(&self) -> impl Iterator<Item = (&'a str, &'a Json)> + '_ {
        self.members.iter().map(|(key, value)| (key.as_str(), value))
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&'a Json) -> Option<T>,
    ) -> Result<Option<T>, RequestError> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => {
                read(value).map(Some).ok_or_else(|| wrong(self.path(key), expected, value))
            }
        }
    }
}

/// A number within bounds, both included; `path` is its path for error messages.
pub(super) fn number(
    value: &Json,
    path: impl Fn() -> String,
    min: f64,
    max: f64,
) -> Result<f32, RequestError> {
    let Json::Number(number) = value else { return Err(wrong(path(), "a number", value)) };
    let found = number.to_f64();
    if !(min..=max).contains(&found) {
        let message = format!("is {}, expected {min} to {max}", number.text());
        return Err(RequestError { path: path(), message });
    }
    Ok(found as f32)
}

/// The error for a value of the wrong type.
pub(super) fn wrong(path: String, expected: &str, found: &Json) -> RequestError {
    RequestError { path, message: format!("is {}, expected {expected}", found.kind()) }
}
