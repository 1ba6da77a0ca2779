//! Checks whether a JSON schema can be enforced: every keyword is supported and has a value of the
//! right kind. Errors name the keyword and its path.

use std::collections::HashSet;

use super::finite;
use super::limits::MAX_TEXT_BYTES;
use super::regex;
use crate::json::{Json, Number, References};

/// The most schemas and subschemas in a request.
const MAX_SCHEMAS: usize = 10_000;

/// The most properties of all objects in a request: compiling them takes about a second.
const MAX_PROPERTIES: usize = 4000;

/// The most optional properties of one object: each of them may come next.
pub(super) const MAX_OPTIONAL: usize = 400;

/// The most schemas of a `oneOf`, which are compared pairwise.
const MAX_ONE_OF: usize = 500;

/// The most patterns for names of properties, which are compared pairwise.
const MAX_NAME_PATTERNS: usize = 16;

/// The most characters that all patterns of a request match, together with each `minLength` beside
/// a pattern.
const MAX_CHARACTERS: u64 = 40_000;

/// The largest divisor as a whole number (decimals scaled away), and the largest sum of them in a
/// request: the work grows with each.
const MAX_DIVISOR: f64 = 10_000.0;
const MAX_DIVISORS: u64 = 50_000;

/// The most decimals of a divisor.
const MAX_DECIMALS: u32 = 9;

/// The first integer beyond which doubles are not exact.
const MAX_BOUND: f64 = 9_007_199_254_740_992.0;

/// What the value of a keyword must be.
#[derive(Clone, Copy)]
enum KeywordKind {
    /// A regular expression.
    Pattern,
    Text,
    /// A `$ref` within the schema.
    Reference,
    Number,
    Divisor,
    Count,
    Flag,
    /// Any value.
    Constant,
    /// A list of any values.
    AnyList,
    /// A list of names.
    Names,
    /// A type name or a list of them.
    Types,
    Schema,
    /// One schema, or one per position.
    SchemaOrList,
    Schemas,
    /// Schemas by name.
    Members,
    /// The keyword cannot be enforced.
    Unsupported,
}

/// What the value of a keyword must be; none for annotations and unknown words, which schema
/// readers ignore.
fn kind(keyword: &str) -> Option<KeywordKind> {
    Some(match keyword {
        "pattern" => KeywordKind::Pattern,
        "format" => KeywordKind::Text,
        "$ref" => KeywordKind::Reference,
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => KeywordKind::Number,
        "multipleOf" => KeywordKind::Divisor,
        "minItems" | "maxItems" | "minProperties" | "maxProperties" | "minLength" | "maxLength" => {
            KeywordKind::Count
        }
        "nullable" => KeywordKind::Flag,
        "const" => KeywordKind::Constant,
        "enum" => KeywordKind::AnyList,
        "required" => KeywordKind::Names,
        "type" => KeywordKind::Types,
        "additionalProperties" | "additionalItems" => KeywordKind::Schema,
        "items" => KeywordKind::SchemaOrList,
        "anyOf" | "oneOf" | "allOf" | "prefixItems" => KeywordKind::Schemas,
        "properties" | "patternProperties" | "$defs" | "definitions" => KeywordKind::Members,
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
        | "$recursiveRef" => KeywordKind::Unsupported,
        _ => return None,
    })
}

/// Whether a keyword constrains values, rather than describing or naming them.
pub(super) fn binds(keyword: &str) -> bool {
    kind(keyword).is_some() && !matches!(keyword, "$defs" | "definitions" | "nullable")
}

const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// Totals over the schemas of one request.
#[derive(Default)]
pub(super) struct SchemaTotals {
    schemas: usize,
    properties: usize,
    characters: u64,
    divisors: u64,
}

/// Checks a schema and its subschemas, adding to the `totals` of the request: every keyword is
/// supported and has a value of its kind, and the whole can be compiled in about a second.
pub(super) fn check(schema: &Json, totals: &mut SchemaTotals) -> Result<(), String> {
    let references = References::new(schema);
    let mut checker = SchemaChecker {
        references,
        path: String::new(),
        totals,
        divisors: Vec::new(),
        joins: false,
    };
    checker.schema(schema)?;
    checker.joined_divisors()?;
    finite::check(schema)
}

struct SchemaChecker<'a> {
    references: References<'a>,
    /// The path of the current subschema, as a JSON pointer.
    path: String,
    totals: &'a mut SchemaTotals,
    /// Each `multipleOf` as a whole number, and its decimals.
    divisors: Vec<(u64, u32)>,
    /// Whether several schemas may apply to one value.
    joins: bool,
}

impl SchemaChecker<'_> {
    fn schema(&mut self, schema: &Json) -> Result<(), String> {
        self.totals.schemas += 1;
        if self.totals.schemas > MAX_SCHEMAS {
            return Err(format!(
                "it holds, with others of the request, more than {MAX_SCHEMAS} schemas; use a \
                 smaller schema, and `$ref` for parts that come again"
            ));
        }
        match schema {
            Json::Bool(_) => Ok(()),
            Json::Object(members) => {
                members.iter().try_for_each(|(keyword, value)| {
                    let Some(kind) = kind(keyword) else { return Ok(()) };
                    self.within(keyword, |checker| checker.value(kind, keyword, value))
                })?;
                self.bounds(schema)?;
                self.texts(schema)?;
                self.members(schema)
            }
            other => Err(format!("{} is {}, expected a schema", self.location(), other.kind())),
        }
    }

    /// Refuses a minimum above its maximum.
    fn bounds(&self, schema: &Json) -> Result<(), String> {
        for (min, max) in [
            ("minimum", "maximum"),
            ("minLength", "maxLength"),
            ("minItems", "maxItems"),
            ("minProperties", "maxProperties"),
        ] {
            let bound = |key| schema.member(key).and_then(Json::as_number);
            if let (Some(low), Some(high)) = (bound(min), bound(max))
                && low.to_f64() > high.to_f64()
            {
                let (low, high, location) = (low.text(), high.text(), self.location());
                return Err(format!(
                    "`{min}` {low} is above `{max}` {high} at {location}, which leaves no value"
                ));
            }
        }
        Ok(())
    }

    /// Counts a `minLength` beside a pattern or format: whether any text fits both is searched
    /// character by character.
    fn texts(&mut self, schema: &Json) -> Result<(), String> {
        let narrow = ["pattern", "format"].iter().any(|key| schema.member(key).is_some());
        match schema.member("minLength").and_then(Json::as_number).and_then(Number::to_u64) {
            Some(length) if narrow => self.add_characters(length),
            _ => Ok(()),
        }
    }

    /// Several divisors that may apply to one value are combined into their least common multiple.
    fn joined_divisors(&self) -> Result<(), String> {
        if !self.joins {
            return Ok(());
        }
        let decimals = self.divisors.iter().map(|(_, decimals)| *decimals).max().unwrap_or(0);
        let mut whole = self.divisors.iter().map(|(value, own)| value * 10_u64.pow(decimals - own));
        let fits = |multiple: &u64| *multiple as f64 <= MAX_DIVISOR;
        let Some(first) = whole.next() else { return Ok(()) };
        // With the decimals of the others, each alone may exceed the limit of a single divisor.
        match whole.try_fold(first, |all, next| {
            if all == next {
                Some(all)
            } else {
                Some(least_common_multiple(all, next)).filter(fits)
            }
        }) {
            Some(_) => Ok(()),
            None => Err("the `multipleOf` of schemas that may have to hold together, by `allOf`, \
                         `anyOf`, `oneOf` or `$ref`, have a common multiple above 10000 without \
                         decimal points; use one divisor"
                .to_owned()),
        }
    }

    fn add_characters(&mut self, characters: u64) -> Result<(), String> {
        self.totals.characters = self.totals.characters.saturating_add(characters);
        match self.totals.characters > MAX_CHARACTERS {
            true => Err(format!(
                "`pattern` and `minLength` stand for {} characters up to {}, at most {MAX_CHARACTERS} in \
                 a request; use fewer or smaller counts",
                self.totals.characters,
                self.location()
            )),
            false => Ok(()),
        }
    }

    /// The properties of an object.
    fn members(&mut self, schema: &Json) -> Result<(), String> {
        let Some(declared) = schema.member("properties").and_then(Json::as_object) else {
            return Ok(());
        };
        self.totals.properties += declared.len();
        if self.totals.properties > MAX_PROPERTIES {
            return Err(format!(
                "`properties` are {} up to {}, at most {MAX_PROPERTIES} in a request; use a smaller \
                 schema",
                self.totals.properties,
                self.location()
            ));
        }
        let required = schema.member("required").and_then(Json::as_array).unwrap_or_default();
        let required: HashSet<&str> = required.iter().filter_map(Json::as_str).collect();
        let left = |(key, _): &&(String, Json)| !required.contains(key.as_str());
        let optional = declared.iter().filter(left).count();
        if optional > MAX_OPTIONAL {
            return Err(format!(
                "{optional} of the `properties` of {} may be left out, at most {MAX_OPTIONAL}; \
                 name more of them in `required`, or put some into an object of their own",
                self.location()
            ));
        }
        let counted = ["minProperties", "maxProperties"];
        match counted.iter().find(|key| schema.member(key).is_some()) {
            Some(keyword) if optional * declared.len() > MAX_PROPERTIES => Err(format!(
                "keyword `{keyword}` at {} beside {} `properties`, of which {optional} may be left \
                 out, is not supported; name them in `required`",
                self.location(),
                declared.len()
            )),
            _ => Ok(()),
        }
    }

    fn value(&mut self, kind: KeywordKind, keyword: &str, value: &Json) -> Result<(), String> {
        self.joins |= matches!(keyword, "allOf" | "anyOf" | "oneOf" | "$ref");
        match (kind, value) {
            (KeywordKind::Unsupported, value)
                if keyword == "uniqueItems" && value.as_bool() == Some(false) =>
            {
                return Ok(());
            }
            (KeywordKind::Unsupported, _) => {
                return Err(format!("keyword `{keyword}` at {} is not supported", self.location()));
            }
            (
                KeywordKind::Pattern
                | KeywordKind::Text
                | KeywordKind::AnyList
                | KeywordKind::Constant,
                value,
            ) if longest(value) > MAX_TEXT_BYTES => {
                return Err(format!(
                    "keyword `{keyword}` at {} has a text of {} bytes, at most {MAX_TEXT_BYTES}",
                    self.location(),
                    longest(value)
                ));
            }
            (KeywordKind::Pattern, Json::String(pattern)) => return self.pattern(keyword, pattern),
            (KeywordKind::Schema, schema) => return self.schema(schema),
            (KeywordKind::SchemaOrList, schema) if schema.as_array().is_none() => {
                return self.schema(schema);
            }
            _ => {}
        }
        let (fits, expected) = self.fits(kind, value);
        if !fits {
            let (location, found) = (self.location(), short_form(value));
            return Err(format!(
                "keyword `{keyword}` at {location} is {found}, expected {expected}"
            ));
        }
        self.parts(kind, keyword, value)
    }

    /// Whether a value is of its kind, and what is expected.
    fn fits(&mut self, kind: KeywordKind, value: &Json) -> (bool, &'static str) {
        let all = |fits: fn(&Json) -> bool| value.as_array().is_some_and(|v| v.iter().all(fits));
        let empty = Json::Array(Vec::new());
        match kind {
            KeywordKind::Pattern | KeywordKind::Text => (value.as_str().is_some(), "a string"),
            KeywordKind::Reference => {
                let found = self.references.follow(value).is_some();
                (found, "a reference to a part of the same schema")
            }
            KeywordKind::Number => {
                let bound = value.as_number().map(Number::to_f64);
                let expected = "a number from -9007199254740992 to 9007199254740992";
                (bound.is_some_and(|bound| bound.abs() <= MAX_BOUND), expected)
            }
            KeywordKind::Divisor => {
                let divisor = value.as_number().and_then(divisor);
                self.divisors.extend(divisor);
                self.totals.divisors += divisor.map_or(0, |(whole, _)| whole);
                let expected = "a number above 0, without its decimal point at most 10000 alone and \
                              50000 with all others of the request";
                (divisor.is_some() && self.totals.divisors <= MAX_DIVISORS, expected)
            }
            KeywordKind::Count => {
                let count = value.as_number().and_then(Number::to_u64);
                let fits = count.is_some_and(|count| count < u64::from(u32::MAX));
                (fits, "a whole number from 0 to 4294967294")
            }
            KeywordKind::Flag => (value.as_bool().is_some(), "a boolean"),
            KeywordKind::AnyList => {
                (all(|_| true) && *value != empty, "a list of one or more values")
            }
            KeywordKind::Names => (all(|name| name.as_str().is_some()), "a list of names"),
            KeywordKind::Types => {
                let names = value.as_array().unwrap_or(std::slice::from_ref(value));
                let known = |name: &Json| name.as_str().is_some_and(|name| TYPES.contains(&name));
                let expected = "null, boolean, integer, number, string, array, object or a list of \
                              these";
                (!names.is_empty() && names.iter().all(known), expected)
            }
            KeywordKind::Schemas => {
                (all(|_| true) && *value != empty, "a list of one or more schemas")
            }
            KeywordKind::Members => (value.as_object().is_some(), "an object of schemas"),
            KeywordKind::Constant
            | KeywordKind::Schema
            | KeywordKind::SchemaOrList
            | KeywordKind::Unsupported => (true, "a value"),
        }
    }

    /// The subschemas within a value.
    fn parts(&mut self, kind: KeywordKind, keyword: &str, value: &Json) -> Result<(), String> {
        match (kind, value) {
            (KeywordKind::Schemas, Json::Array(items))
                if keyword == "oneOf" && items.len() > MAX_ONE_OF =>
            {
                self.too_many(keyword, items.len(), MAX_ONE_OF)
            }
            (KeywordKind::SchemaOrList | KeywordKind::Schemas, Json::Array(items)) => {
                let mut items = items.iter().enumerate();
                items.try_for_each(|(i, part)| self.within(&i.to_string(), |w| w.schema(part)))
            }
            (KeywordKind::Members, Json::Object(members)) => {
                if keyword == "patternProperties" {
                    if members.len() > MAX_NAME_PATTERNS {
                        return self.too_many(keyword, members.len(), MAX_NAME_PATTERNS);
                    }
                    members.iter().try_for_each(|(key, _)| self.pattern(keyword, key))?;
                }
                members.iter().try_for_each(|(key, part)| self.within(key, |w| w.schema(part)))
            }
            _ => Ok(()),
        }
    }

    fn pattern(&mut self, keyword: &str, pattern: &str) -> Result<(), String> {
        let characters = regex::check(pattern).map_err(|error| {
            let quoted = regex::quoted(pattern);
            format!("keyword `{keyword}` at {} has the pattern {quoted}: {error}", self.location())
        })?;
        self.add_characters(characters)
    }

    fn too_many(&self, keyword: &str, found: usize, max: usize) -> Result<(), String> {
        let location = self.location();
        Err(format!(
            "keyword `{keyword}` at {location} has {found} entries, at most {max}; use fewer"
        ))
    }

    fn within(
        &mut self,
        step: &str,
        checker: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let length = self.path.len();
        self.path.push('/');
        self.path.push_str(step);
        checker(self)?;
        self.path.truncate(length);
        Ok(())
    }

    fn location(&self) -> &str {
        if self.path.is_empty() { "the top" } else { &self.path }
    }
}

/// A divisor as a whole number, and the decimals scaled away; none when it is not positive or too
/// large.
fn divisor(number: &Number) -> Option<(u64, u32)> {
    let mut value = number.to_f64();
    for decimals in 0..=MAX_DECIMALS {
        if value <= 0.0 || value > MAX_DIVISOR {
            return None;
        }
        if value.fract() == 0.0 {
            return Some((value as u64, decimals));
        }
        value *= 10.0;
    }
    None
}

/// The least common multiple of two numbers above 0, both at most 10^13.
fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut divisor, mut rest) = (a, b);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (a / divisor).saturating_mul(b)
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

/// A value as error messages quote it.
fn short_form(value: &Json) -> String {
    match value {
        Json::Number(_) | Json::Bool(_) | Json::Null => value.to_compact(),
        Json::String(text) if text.len() <= 40 => format!("{text:?}"),
        other => other.kind().to_owned(),
    }
}
