//! The JSON value that a parameter's text stands for under the tool's JSON schema.

use std::collections::HashSet;

use crate::json::{Json, Number, follow};

/// The most schema nodes visited for one value: `$ref` can refer to itself without end.
const FUEL: usize = 1_000;

/// The value of `text` as the parameter `key` of a tool with the schema `root`.
pub(super) fn typed(text: &str, key: &str, root: Option<&Json>) -> Json {
    let schema = root.and_then(|root| Some((property(root, key, root, &mut FUEL.clone())?, root)));
    match schema.and_then(|(schema, root)| types(schema, root, &mut FUEL.clone())) {
        Some(types) => types.read(text),
        None => untyped(text),
    }
}

/// Whether the parameter `key` is a string whatever its text spells, and whether the text `null` is
/// an exception to that.
pub(super) fn is_string(key: &str, root: Option<&Json>) -> (bool, bool) {
    let schema = root.and_then(|root| Some((property(root, key, root, &mut FUEL.clone())?, root)));
    let types = schema.and_then(|(schema, root)| types(schema, root, &mut FUEL.clone()));
    types.map_or((false, false), |types| (types.string, types.null))
}

/// The schema of a property, found through `$ref` and `allOf` of the root schema.
fn property<'a>(schema: &'a Json, key: &str, root: &'a Json, fuel: &mut usize) -> Option<&'a Json> {
    *fuel = fuel.checked_sub(1)?;
    if let Some(found) = schema.member("properties").and_then(|all| all.member(key)) {
        return Some(found);
    }
    if let Some(target) = schema.member("$ref").and_then(|target| follow(target, root)) {
        return property(target, key, root, fuel);
    }
    let parts = schema.member("allOf").and_then(Json::as_array).unwrap_or_default();
    parts.iter().find_map(|part| property(part, key, root, fuel))
}

/// The JSON types that a schema allows.
#[derive(Clone, Debug, Default, PartialEq)]
struct Types<'a> {
    null: bool,
    boolean: bool,
    integer: bool,
    number: bool,
    string: bool,
    array: bool,
    object: bool,
    /// The strings of `enum` and `const`, where strings in general are not allowed.
    texts: Vec<&'a str>,
}

/// The types that a schema declares; `None` when it declares no type.
fn types<'a>(schema: &'a Json, root: &'a Json, fuel: &mut usize) -> Option<Types<'a>> {
    *fuel = fuel.checked_sub(1)?;
    let mut found: Option<Types<'a>> = None;
    let mut narrow = |declared: Option<Types<'a>>| {
        found = match (found.take(), declared) {
            (Some(one), Some(other)) => Some(one.and(other)),
            (one, other) => one.or(other),
        };
    };
    if let Some(target) = schema.member("$ref").and_then(|target| follow(target, root)) {
        narrow(types(target, root, fuel));
    }
    narrow(schema.member("type").and_then(Types::named));
    if let Some(values) = schema.member("enum").and_then(Json::as_array) {
        narrow(Some(values.iter().fold(Types::default(), |all, value| all.or(Types::of(value)))));
    }
    narrow(schema.member("const").map(Types::of));
    for key in ["anyOf", "oneOf"] {
        if let Some(branches) = schema.member(key).and_then(Json::as_array) {
            let branches = branches.iter().map(|branch| types(branch, root, fuel));
            // A branch without a type allows everything, so the union declares no type.
            let union: Option<Vec<_>> = branches.collect();
            narrow(union.map(|all| all.into_iter().fold(Types::default(), Types::or)));
        }
    }
    for part in schema.member("allOf").and_then(Json::as_array).unwrap_or_default() {
        narrow(types(part, root, fuel));
    }
    if schema.member("nullable").and_then(Json::as_bool) == Some(true) {
        found = found.map(|types| Types { null: true, ..types });
    }
    found
}

impl<'a> Types<'a> {
    /// The types named by the value of `type`: one name or a list.
    fn named(value: &'a Json) -> Option<Self> {
        let names = value.as_array().unwrap_or(std::slice::from_ref(value));
        let mut types = Self::default();
        for name in names {
            match name.as_str()? {
                "null" => types.null = true,
                "boolean" => types.boolean = true,
                "integer" => types.integer = true,
                "number" => types.number = true,
                "string" => types.string = true,
                "array" => types.array = true,
                "object" => types.object = true,
                _ => return None,
            }
        }
        Some(types)
    }

    /// The type of one allowed value.
    fn of(value: &'a Json) -> Self {
        let mut types = Self::default();
        match value {
            Json::Null => types.null = true,
            Json::Bool(_) => types.boolean = true,
            Json::Number(number) if number.is_integer() => types.integer = true,
            Json::Number(_) => types.number = true,
            Json::String(text) => types.texts.push(text),
            Json::Array(_) => types.array = true,
            Json::Object(_) => types.object = true,
        }
        types
    }

    fn or(mut self, other: Self) -> Self {
        self.texts.extend(other.texts);
        Self {
            null: self.null || other.null,
            boolean: self.boolean || other.boolean,
            integer: self.integer || other.integer,
            number: self.number || other.number,
            string: self.string || other.string,
            array: self.array || other.array,
            object: self.object || other.object,
            texts: self.texts,
        }
    }

    fn and(self, other: Self) -> Self {
        let integer =
            (self.integer && (other.integer || other.number)) || (self.number && other.integer);
        let texts = match (self.string, other.string) {
            (true, _) => other.texts,
            (_, true) => self.texts,
            _ => {
                let allowed: HashSet<&str> = other.texts.into_iter().collect();
                self.texts.into_iter().filter(|text| allowed.contains(text)).collect()
            }
        };
        Self {
            null: self.null && other.null,
            boolean: self.boolean && other.boolean,
            integer,
            number: self.number && other.number,
            string: self.string && other.string,
            array: self.array && other.array,
            object: self.object && other.object,
            texts,
        }
    }

    /// The value of `text`; text that fits no allowed type becomes a string.
    fn read(&self, text: &str) -> Json {
        if self.null && text == "null" {
            return Json::Null;
        }
        if self.string || self.texts.contains(&text) {
            return Json::String(text.to_owned());
        }
        let trimmed = text.trim();
        if self.boolean && trimmed.eq_ignore_ascii_case("true") {
            return Json::Bool(true);
        }
        if self.boolean && trimmed.eq_ignore_ascii_case("false") {
            return Json::Bool(false);
        }
        if let Some(number) = Number::parse(trimmed) {
            if let (true, Some(whole)) = (self.integer, whole(&number)) {
                return Json::Number(whole);
            }
            if self.number && number.to_f64().is_finite() {
                return Json::Number(number);
            }
        }
        match Json::parse(trimmed) {
            Ok(value @ Json::Object(_)) if self.object => value,
            Ok(value @ Json::Array(_)) if self.array => value,
            _ => Json::String(text.to_owned()),
        }
    }
}

/// The number as an integer when its fraction is zero (`3.0` is 3); exact, without a double.
fn whole(number: &Number) -> Option<Number> {
    if number.is_integer() {
        return Some(number.clone());
    }
    let (whole, fraction) = number.text().split_once('.')?;
    fraction.bytes().all(|digit| digit == b'0').then(|| Number::parse(whole))?
}

/// Without a declared type, objects and arrays are read as JSON. Scalars are read only when they
/// print back to the same bytes, so that nothing is lost.
fn untyped(text: &str) -> Json {
    match Json::parse(text) {
        Ok(value @ (Json::Object(_) | Json::Array(_))) => value,
        Ok(value @ (Json::Null | Json::Bool(_))) if value.to_compact() == text => value,
        Ok(Json::Number(number)) if number.to_python() == text => Json::Number(number),
        _ => Json::String(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: &str, text: &str, expect: &str) {
        let root = Json::parse(&format!(r#"{{"properties": {{"p": {schema}}}}}"#)).unwrap();
        assert_eq!(typed(text, "p", Some(&root)).to_compact(), expect, "{schema} {text}");
    }

    #[test]
    fn unions_prefer_null_then_string() {
        let union = r#"{"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]}"#;
        check(union, "5", r#""5""#);
        check(union, "null", "null");
        check(union, " null", r#"" null""#);
        check(r#"{"type": "integer", "nullable": true}"#, "null", "null");
    }

    #[test]
    fn constants_are_read_by_type() {
        let either = r#"{"anyOf": [{"const": "red"}, {"const": 3}]}"#;
        check(either, "red", r#""red""#);
        check(either, "3", "3");
        check(r#"{"type": "string", "enum": ["1", "2"]}"#, "1", r#""1""#);
        check(r#"{"allOf": [{"type": "number"}, {"enum": [1, 2]}]}"#, "2.0", "2");
    }

    #[test]
    fn numbers_stay_exact() {
        check(r#"{"type": "integer"}"#, " -12345678901234567890.000 ", "-12345678901234567890");
        check(r#"{"type": "number"}"#, "2.50", "2.50");
        check(r#"{"type": "number"}"#, "1e999", r#""1e999""#);
        check("{}", "1.50", r#""1.50""#);
        check("{}", "1.5", "1.5");
        check("true", "null", "null");
    }

    #[test]
    fn recursive_references_end() {
        let knot = r##"{"anyOf": [{"$ref": "#/properties/p"}, {"$ref": "#/properties/p"}]}"##;
        check(knot, "5", "5");
    }
}
