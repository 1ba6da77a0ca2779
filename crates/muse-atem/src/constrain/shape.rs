//! Whether a JSON schema is one that can be honoured at all: each keyword known, each with a value
//! of the right kind. Says which keyword is not, and where.

use std::collections::HashSet;

use super::MAX_TEXT_BYTES;
use super::expression;
use crate::json::{Json, Number, References};

/// The most schemas that those of a request may hold, themselves included.
const MAX_SCHEMAS: usize = 10_000;

/// The most properties that the schemas of a request may declare in all their objects: compiling them takes about a
/// second.
const MAX_PROPERTIES: usize = 4000;

/// The most properties of one object that may be left out: each of them may come next.
pub(super) const MAX_OPTIONAL: usize = 400;

/// The most schemas of a `oneOf`, which are compared with each other.
const MAX_ONE_OF: usize = 500;

/// The most patterns for the names of properties, which are compared with each other.
const MAX_NAME_PATTERNS: usize = 16;

/// The most letters that all patterns of a request may stand for, and texts that must be long beside
/// a pattern.
const MAX_LETTERS: u64 = 40_000;

/// The largest divisor, decimals made whole, and the most that all of a request may come to: the work
/// grows with each of them.
const MAX_DIVISOR: f64 = 10_000.0;
const MAX_DIVISORS: u64 = 50_000;

/// The most decimals of a divisor.
const MAX_DECIMALS: u32 = 9;

/// Numbers from here on are no longer exact when they are bounds.
const MAX_BOUND: f64 = 9_007_199_254_740_992.0;

/// What the value of a keyword must be.
#[derive(Clone, Copy)]
enum Kind {
    /// A regular expression.
    Pattern,
    Text,
    /// Where another schema is.
    Reference,
    Number,
    Divisor,
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
        "pattern" => Kind::Pattern,
        "format" => Kind::Text,
        "$ref" => Kind::Reference,
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => Kind::Number,
        "multipleOf" => Kind::Divisor,
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

/// What the schemas of one request came to so far.
#[derive(Default)]
pub(super) struct Spent {
    schemas: usize,
    properties: usize,
    letters: u64,
    divisors: u64,
}

/// Checks a schema with all it holds: that each keyword is known and has a value of its kind, and
/// that all of it, with what was `spent` before, can be compiled in about a second.
pub(super) fn check(schema: &Json, spent: &mut Spent) -> Result<(), String> {
    let references = References::new(schema);
    let mut walk =
        Walk { references, path: String::new(), spent, divisors: Vec::new(), joins: false };
    walk.schema(schema)?;
    walk.joined_divisors()
}

struct Walk<'a> {
    references: References<'a>,
    /// Where the walk is, as a pointer into the schema.
    path: String,
    spent: &'a mut Spent,
    /// Each `multipleOf`, and its decimals.
    divisors: Vec<(u64, u32)>,
    /// Whether schemas may have to hold together.
    joins: bool,
}

impl Walk<'_> {
    fn schema(&mut self, schema: &Json) -> Result<(), String> {
        self.spent.schemas += 1;
        if self.spent.schemas > MAX_SCHEMAS {
            return Err(format!(
                "it holds, with others of the request, more than {MAX_SCHEMAS} schemas; use a smaller schema, and `$ref` for \
                 parts that come again"
            ));
        }
        match schema {
            Json::Bool(_) => Ok(()),
            Json::Object(members) => {
                members.iter().try_for_each(|(keyword, value)| {
                    let Some(kind) = kind(keyword) else { return Ok(()) };
                    self.within(keyword, |walk| walk.value(kind, keyword, value))
                })?;
                self.bounds(schema)?;
                self.texts(schema)?;
                self.members(schema)
            }
            other => Err(format!("{} is {}, expected a schema", self.place(), other.kind())),
        }
    }

    /// Bounds between which nothing is.
    fn bounds(&self, schema: &Json) -> Result<(), String> {
        for (least, most) in [
            ("minimum", "maximum"),
            ("minLength", "maxLength"),
            ("minItems", "maxItems"),
            ("minProperties", "maxProperties"),
        ] {
            let bound = |key| schema.member(key).and_then(Json::as_number);
            if let (Some(low), Some(high)) = (bound(least), bound(most))
                && low.to_f64() > high.to_f64()
            {
                let (low, high, place) = (low.text(), high.text(), self.place());
                return Err(format!(
                    "`{least}` {low} is above `{most}` {high} at {place}, which leaves no value"
                ));
            }
        }
        Ok(())
    }

    /// Texts that must be long beside a pattern: whether there are any is found letter by letter.
    fn texts(&mut self, schema: &Json) -> Result<(), String> {
        let narrow = ["pattern", "format"].iter().any(|key| schema.member(key).is_some());
        match schema.member("minLength").and_then(Json::as_number).and_then(Number::to_u64) {
            Some(length) if narrow => self.spell(length),
            _ => Ok(()),
        }
    }

    /// Divisors that may have to hold together are one, their least common multiple.
    fn joined_divisors(&self) -> Result<(), String> {
        if !self.joins {
            return Ok(());
        }
        let decimals = self.divisors.iter().map(|(_, decimals)| *decimals).max().unwrap_or(0);
        let mut whole = self.divisors.iter().map(|(value, own)| value * 10_u64.pow(decimals - own));
        let fits = |multiple: &u64| *multiple as f64 <= MAX_DIVISOR;
        let Some(first) = whole.next() else { return Ok(()) };
        // Each alone may be larger when it is written with the decimals of others.
        match whole.try_fold(first, |all, next| {
            if all == next { Some(all) } else { Some(multiple(all, next)).filter(fits) }
        }) {
            Some(_) => Ok(()),
            None => Err("the `multipleOf` of schemas that may have to hold together, by `allOf`, \
                         `anyOf`, `oneOf` or `$ref`, have a common multiple above 10000 without \
                         decimal points; use one divisor"
                .to_owned()),
        }
    }

    fn spell(&mut self, letters: u64) -> Result<(), String> {
        self.spent.letters = self.spent.letters.saturating_add(letters);
        match self.spent.letters > MAX_LETTERS {
            true => Err(format!(
                "`pattern` and `minLength` stand for {} letters up to {}, at most {MAX_LETTERS} in \
                 a request; use fewer or smaller counts",
                self.spent.letters,
                self.place()
            )),
            false => Ok(()),
        }
    }

    /// The properties of an object.
    fn members(&mut self, schema: &Json) -> Result<(), String> {
        let Some(declared) = schema.member("properties").and_then(Json::as_object) else {
            return Ok(());
        };
        self.spent.properties += declared.len();
        if self.spent.properties > MAX_PROPERTIES {
            return Err(format!(
                "`properties` are {} up to {}, at most {MAX_PROPERTIES} in a request; use a smaller \
                 schema",
                self.spent.properties,
                self.place()
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
                self.place()
            ));
        }
        let counted = ["minProperties", "maxProperties"];
        match counted.iter().find(|key| schema.member(key).is_some()) {
            Some(keyword) if optional * declared.len() > MAX_PROPERTIES => Err(format!(
                "keyword `{keyword}` at {} beside {} `properties`, of which {optional} may be left \
                 out, is not supported; name them in `required`",
                self.place(),
                declared.len()
            )),
            _ => Ok(()),
        }
    }

    fn value(&mut self, kind: Kind, keyword: &str, value: &Json) -> Result<(), String> {
        self.joins |= matches!(keyword, "allOf" | "anyOf" | "oneOf" | "$ref");
        match (kind, value) {
            (Kind::Beyond, value) if keyword == "uniqueItems" && value.as_bool() == Some(false) => {
                return Ok(());
            }
            (Kind::Beyond, _) => {
                return Err(format!("keyword `{keyword}` at {} is not supported", self.place()));
            }
            (Kind::Pattern | Kind::Text | Kind::Values | Kind::Constant, value)
                if longest(value) > MAX_TEXT_BYTES =>
            {
                return Err(format!(
                    "keyword `{keyword}` at {} has a text of {} bytes, at most {MAX_TEXT_BYTES}",
                    self.place(),
                    longest(value)
                ));
            }
            (Kind::Pattern, Json::String(pattern)) => return self.pattern(keyword, pattern),
            (Kind::Schema, schema) => return self.schema(schema),
            (Kind::SchemaOrList, schema) if schema.as_array().is_none() => {
                return self.schema(schema);
            }
            _ => {}
        }
        let (fits, wanted) = self.fits(kind, value);
        if !fits {
            let (place, found) = (self.place(), told(value));
            return Err(format!("keyword `{keyword}` at {place} is {found}, expected {wanted}"));
        }
        self.parts(kind, keyword, value)
    }

    /// Whether a value is of its kind, and what would be.
    fn fits(&mut self, kind: Kind, value: &Json) -> (bool, &'static str) {
        let all = |fits: fn(&Json) -> bool| value.as_array().is_some_and(|v| v.iter().all(fits));
        let empty = Json::Array(Vec::new());
        match kind {
            Kind::Pattern | Kind::Text => (value.as_str().is_some(), "a string"),
            Kind::Reference => {
                let found = self.references.follow(value).is_some();
                (found, "a reference to a part of the same schema")
            }
            Kind::Number => {
                let bound = value.as_number().map(Number::to_f64);
                let wanted = "a number from -9007199254740992 to 9007199254740992";
                (bound.is_some_and(|bound| bound.abs() <= MAX_BOUND), wanted)
            }
            Kind::Divisor => {
                let divisor = value.as_number().and_then(divisor);
                self.divisors.extend(divisor);
                self.spent.divisors += divisor.map_or(0, |(whole, _)| whole);
                let wanted = "a number above 0, without its decimal point at most 10000 alone and \
                              50000 with all others of the request";
                (divisor.is_some() && self.spent.divisors <= MAX_DIVISORS, wanted)
            }
            Kind::Count => {
                let count = value.as_number().and_then(Number::to_u64);
                let fits = count.is_some_and(|count| count < u64::from(u32::MAX));
                (fits, "a whole number from 0 to 4294967294")
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
            Kind::Schemas => (all(|_| true) && *value != empty, "a list of one or more schemas"),
            Kind::Members => (value.as_object().is_some(), "an object of schemas"),
            Kind::Constant | Kind::Schema | Kind::SchemaOrList | Kind::Beyond => (true, "a value"),
        }
    }

    /// The schemas within a value.
    fn parts(&mut self, kind: Kind, keyword: &str, value: &Json) -> Result<(), String> {
        match (kind, value) {
            (Kind::Schemas, Json::Array(items))
                if keyword == "oneOf" && items.len() > MAX_ONE_OF =>
            {
                self.too_many(keyword, items.len(), MAX_ONE_OF)
            }
            (Kind::SchemaOrList | Kind::Schemas, Json::Array(items)) => {
                let mut items = items.iter().enumerate();
                items.try_for_each(|(i, part)| self.within(&i.to_string(), |w| w.schema(part)))
            }
            (Kind::Members, Json::Object(members)) => {
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
        let letters = expression::check(pattern).map_err(|fault| {
            let quoted = expression::quoted(pattern);
            format!("keyword `{keyword}` at {} has the pattern {quoted}: {fault}", self.place())
        })?;
        self.spell(letters)
    }

    fn too_many(&self, keyword: &str, found: usize, most: usize) -> Result<(), String> {
        let place = self.place();
        Err(format!(
            "keyword `{keyword}` at {place} has {found} entries, at most {most}; use fewer"
        ))
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

/// A divisor with its decimals made whole, and how many they are; none when it is none or too
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
fn multiple(a: u64, b: u64) -> u64 {
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

/// A value in few words.
fn told(value: &Json) -> String {
    match value {
        Json::Number(_) | Json::Bool(_) | Json::Null => value.to_compact(),
        Json::String(text) if text.len() <= 40 => format!("{text:?}"),
        other => other.kind().to_owned(),
    }
}
