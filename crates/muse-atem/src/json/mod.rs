//! A small JSON value that keeps key order and the spelling of numbers. Not a replacement for
//! `serde_json`, whose numbers pass through a double.

mod number;
mod print;
mod read;

pub use number::Number;
pub(crate) use number::python_float;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;

/// Values nested deeper than this are refused, so that hostile input cannot exhaust the stack.
pub const MAX_DEPTH: usize = 128;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number as it was spelled.
    Number(Number),
    /// A text.
    String(String),
    /// A list.
    Array(Vec<Json>),
    /// Members in the order given; of duplicate keys, the first position and the last value.
    Object(Vec<(String, Json)>),
}

/// Why a text is not JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// Bytes before the error.
    pub offset: usize,
    /// What was found and what was expected.
    pub message: String,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.message, self.offset)
    }
}

impl std::error::Error for JsonError {}

impl Json {
    /// Parses a text that is one value.
    ///
    /// # Errors
    /// The text is not JSON (RFC 8259; `NaN` and `Infinity` are not numbers) or is nested deeper
    /// than [`MAX_DEPTH`].
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        read::whole(text)
    }

    /// An object; of duplicate keys, the first position and the last value count.
    pub fn object(members: Vec<(String, Json)>) -> Self {
        Self::Object(read::last_wins(members))
    }

    /// The members of an object.
    pub fn as_object(&self) -> Option<&[(String, Json)]> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The items of a list.
    pub fn as_array(&self) -> Option<&[Json]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The value of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The number.
    pub fn as_number(&self) -> Option<&Number> {
        match self {
            Self::Number(number) => Some(number),
            _ => None,
        }
    }

    /// Whether this is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// A member of an object.
    pub fn member(&self, key: &str) -> Option<&Json> {
        self.as_object()?.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// What a value is called in error messages: `an object`, `a string`, ….
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::String(_) => "a string",
            Self::Array(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    /// Spelled like Python's `json.dumps(value, ensure_ascii=False)`.
    pub fn to_python(&self) -> String {
        let mut out = String::new();
        print::python(self, &mut out);
        out
    }

    /// Spelled without white space; numbers keep their spelling.
    pub fn to_compact(&self) -> String {
        let mut out = String::new();
        print::compact(self, &mut out);
        out
    }
}

/// Appends `text` as a JSON string with its quotes.
pub(crate) fn quote(text: &str, out: &mut String) {
    print::string(text, out);
}

/// Appends `text` escaped, without the quotes of a JSON string.
pub(crate) fn escape(text: &str, out: &mut String) {
    print::escaped(text, out);
}

/// The members of an object as text, none of them built; of duplicate keys the last counts.
pub(crate) fn members(text: &str) -> Result<Vec<(String, &str)>, JsonError> {
    read::members(text)
}

/// Parses a checked text that is one value, and says how many of `limit` values it leaves; none
/// when it takes more.
pub(crate) fn bounded(text: &str, limit: usize) -> Option<(Json, usize)> {
    read::bounded(text, limit).ok()
}

/// Parses one value at the start of a text; also returns the number of bytes it takes.
pub(crate) fn first(text: &str) -> Result<(Json, usize), JsonError> {
    read::first(text)
}

/// The target of a `$ref` within the same document.
pub(crate) fn follow<'a>(target: &Json, root: &'a Json) -> Option<&'a Json> {
    walk(target.as_str()?, root, |at, step| at.member(step))
}

/// Follows the `$ref`s of one document. The members of an object are indexed once, not searched for
/// every reference.
pub(crate) struct References<'a> {
    root: &'a Json,
    /// Members by key, for each object that a reference led through; objects are told apart by
    /// address.
    objects: RefCell<HashMap<*const Json, HashMap<&'a str, &'a Json>>>,
}

impl<'a> References<'a> {
    pub(crate) fn new(root: &'a Json) -> Self {
        Self { root, objects: RefCell::default() }
    }

    /// The target of a `$ref`.
    pub(crate) fn follow(&self, target: &Json) -> Option<&'a Json> {
        let mut objects = self.objects.borrow_mut();
        walk(target.as_str()?, self.root, |at, step| {
            let members = objects.entry(std::ptr::from_ref(at)).or_insert_with(|| {
                let members = at.as_object().unwrap_or_default();
                members.iter().map(|(key, value)| (key.as_str(), value)).collect()
            });
            members.get(step).copied()
        })
    }
}

/// The value at a pointer like `#/$defs/a`.
fn walk<'a>(
    pointer: &str,
    root: &'a Json,
    mut member: impl FnMut(&'a Json, &str) -> Option<&'a Json>,
) -> Option<&'a Json> {
    let pointer = pointer.strip_prefix('#')?;
    if pointer.is_empty() {
        return Some(root);
    }
    pointer.strip_prefix('/')?.split('/').try_fold(root, |at, step| {
        let step = step.replace("~1", "/").replace("~0", "~");
        match at {
            Json::Array(items) => items.get(step.parse::<usize>().ok()?),
            value => member(value, &step),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_follow_json_pointers() {
        let text = r##"{"a": [{"b/c": 1}, {"d~": 2}], "": 3, "to": ["#/a/0/b~1c", "#/a/1/d~0", "#/",
            "#/a/2", "#/b", "a", "#a"]}"##;
        let root = Json::parse(text).unwrap();
        let references = References::new(&root);
        let found = root.member("to").unwrap().as_array().unwrap().iter().map(|target| {
            let found = references.follow(target);
            assert_eq!(found, follow(target, &root), "{target:?}");
            found.map_or("none".to_owned(), Json::to_compact)
        });
        assert_eq!(found.collect::<Vec<_>>(), ["1", "2", "3", "none", "none", "none", "none"]);
    }

    /// A linear search per reference would take minutes.
    #[test]
    fn many_references_are_followed_in_linear_time() {
        let names = (0..100_000).map(|i| format!("d{i}"));
        let all = Json::Object(names.map(|name| (name, Json::Null)).collect());
        let references = References::new(&all);
        let start = muse_testkit::CpuTimer::start();
        let found = (0..100_000).map(|i| Json::String(format!("#/d{i}")));
        assert_eq!(found.filter(|target| references.follow(target).is_some()).count(), 100_000);
        assert!(start.elapsed().as_secs() < 30, "took {:?}", start.elapsed());
    }
}
