//! Whether a JSON schema is one that can be honoured at all: each keyword known, each with a value
//! of the right kind. Says which keyword is not, and where.

use super::MAX_TEXT_BYTES;
use crate::json::{Json, Number, References};

/// What the value of a keyword must be.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    /// Where another schema is.
    Reference,
    Number,
    Count,
    Flag,
    /// Any value.
    Constant,
    /// A list of any values.
    Values,
    /// A list of names.
    Names,
    /// Names of types, or one.
    Types,
    Schema,
    /// One schema, or one for each place.
    SchemaOrList,
    Schemas,
    /// Schemas by name.
    Members,
    /// It cannot be honoured.
    Beyond,
}

/// What a keyword holds; none for what only describes, and for words that are no keywords, which
/// a reader of schemas passes over.
fn kind(keyword: &str) -> Option<Kind> {
    Some(match keyword {
        "pattern" | "format" => Kind::Text,
        "$ref" => Kind::Reference,
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => {
            Kind::Number
        }
        "minItems" | "maxItems" | "minProperties" | "maxProperties" | "minLength" | "maxLength" => {
            Kind::Count
        }
        "nullable" => Kind::Flag,
        "const" => Kind::Constant,
        "enum" => Kind::Values,
        "required" => Kind::Names,
        "type" => Kind::Types,
        "additionalProperties" | "additionalItems" => Kind::Schema,
        "items" => Kind::SchemaOrList,
        "anyOf" | "oneOf" | "allOf" | "prefixItems" => Kind::Schemas,
        "properties" | "patternProperties" | "$defs" | "definitions" => Kind::Members,
        "not"
        | "if"
        | "contains"
        | "minContains"
        | "maxContains"
        | "uniqueItems"
        | "dependencies"
        | "dependentRequired"
        | "dependentSchemas"
        | "propertyNames"
        | "unevaluatedItems"
        | "unevaluatedProperties"
        | "$dynamicRef"
        | "$recursiveRef" => Kind::Beyond,
        _ => return None,
    })
}

/// Whether a keyword binds values, rather than describing or naming them.
pub(super) fn binds(keyword: &str) -> bool {
    kind(keyword).is_some() && !matches!(keyword, "$defs" | "definitions" | "nullable")
}

const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// Checks a schema with all it holds.
pub(super) fn check(schema: &Json) -> Result<(), String> {
    Walk { references: References::new(schema), path: String::new() }.schema(schema)
}

struct Walk<'a> {
    references: References<'a>,
    /// Where the walk is, as a pointer into the schema.
    path: String,
}

impl Walk<'_> {
    fn schema(&mut self, schema: &Json) -> Result<(), String> {
        match schema {
            Json::Bool(_) => Ok(()),
            Json::Object(members) => members.iter().try_for_each(|(keyword, value)| {
                let Some(kind) = kind(keyword) else { return Ok(()) };
                self.within(keyword, |walk| walk.value(kind, keyword, value))
            }),
            other => Err(format!("{} is {}, expected a schema", self.place(), other.kind())),
        }
    }

    fn value(&mut self, kind: Kind, keyword: &str, value: &Json) -> Result<(), String> {
        let all = |fits: fn(&Json) -> bool| value.as_array().is_some_and(|v| v.iter().all(fits));
        let empty = Json::Array(Vec::new());
        let (fits, wanted) = match kind {
            Kind::Beyond if keyword == "uniqueItems" && value.as_bool() == Some(false) => {
                return Ok(());
            }
            Kind::Beyond => {
                return Err(format!("keyword `{keyword}` at {} is not supported", self.place()));
            }
            Kind::Text | Kind::Values | Kind::Constant if longest(value) > MAX_TEXT_BYTES => {
                return Err(format!(
                    "keyword `{keyword}` at {} has a text of {} bytes, at most {MAX_TEXT_BYTES}",
                    self.place(),
                    longest(value)
                ));
            }
            Kind::Constant => return Ok(()),
            Kind::Text => (value.as_str().is_some(), "a string"),
            Kind::Reference => (
                self.references.follow(value).is_some(),
                "a reference to a part of the same schema",
            ),
            Kind::Number => (value.as_number().is_some_and(|n| n.to_f64().is_finite()), "a number"),
            Kind::Count => {
                let count = value.as_number().and_then(Number::to_u64);
                (count.is_some(), "a whole number that is not negative")
            }
            Kind::Flag => (value.as_bool().is_some(), "a boolean"),
            Kind::Values => (all(|_| true) && *value != empty, "a list of one or more values"),
            Kind::Names => (all(|name| name.as_str().is_some()), "a list of names"),
            Kind::Types => {
                let names = value.as_array().unwrap_or(std::slice::from_ref(value));
                let known = |name: &Json| name.as_str().is_some_and(|name| TYPES.contains(&name));
                let wanted = "null, boolean, integer, number, string, array, object or a list of \
                              these";
                (!names.is_empty() && names.iter().all(known), wanted)
            }
            Kind::Schema => return self.schema(value),
            Kind::SchemaOrList if value.as_array().is_none() => return self.schema(value),
            Kind::SchemaOrList => (true, "a schema or a list of them"),
            Kind::Schemas => (all(|_| true) && *value != empty, "a list of one or more schemas"),
            Kind::Members => (value.as_object().is_some(), "an object of schemas"),
        };
        if !fits {
            let (place, found) = (self.place(), told(value));
            return Err(format!("keyword `{keyword}` at {place} is {found}, expected {wanted}"));
        }
        match (kind, value) {
            (Kind::SchemaOrList | Kind::Schemas, Json::Array(items)) => {
                let mut items = items.iter().enumerate();
                items.try_for_each(|(i, part)| self.within(&i.to_string(), |w| w.schema(part)))
            }
            (Kind::Members, Json::Object(members)) => {
                members.iter().try_for_each(|(key, part)| self.within(key, |w| w.schema(part)))
            }
            _ => Ok(()),
        }
    }

    fn within(
        &mut self,
        step: &str,
        walk: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let length = self.path.len();
        self.path.push('/');
        self.path.push_str(step);
        walk(self)?;
        self.path.truncate(length);
        Ok(())
    }

    fn place(&self) -> &str {
        if self.path.is_empty() { "the top" } else { &self.path }
    }
}

/// Bytes of the longest text in a value.
fn longest(value: &Json) -> usize {
    match value {
        Json::String(text) => text.len(),
        Json::Array(items) => items.iter().map(longest).max().unwrap_or(0),
        Json::Object(members) => {
            members.iter().map(|(key, value)| key.len().max(longest(value))).max().unwrap_or(0)
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => 0,
    }
}

/// A value in few words.
fn told(value: &Json) -> String {
    match value {
        Json::Number(_) | Json::Bool(_) | Json::Null => value.to_compact(),
        Json::String(text) if text.len() <= 40 => format!("{text:?}"),
        other => other.kind().to_owned(),
    }
}
