//! Values of parameters as the template writes them: strings bare, the rest as JSON.

use std::fmt::Write;

use super::MAX_GRAMMAR_BYTES;
use super::expression::{self, FORMATS};
use super::native::literal;
use crate::json::{Json, Number, References};

/// What ends a value.
const CLOSER: &str = "</atem:parameter>\n";

/// How deep unions and references of a schema are followed.
pub(super) const MAX_DEPTH: usize = 16;

/// The most ways to write one value.
const MAX_WAYS: usize = 4096;

/// The most steps through the schemas of one turn: few schemas that refer to each other can unfold
/// to more than anyone can wait for, even if they allow nothing.
const MAX_STEPS: usize = 1 << 20;

/// Steps that a schema takes beside those for what it holds.
const VISIT: usize = 16;

/// How the template separates: nothing to choose, so that output stays short and history equal.
const NATIVE: &str = r#"{"whitespace_flexible":false,"item_separator":", ","key_separator":": "}"#;

/// Answers are written either way that JSON is on one line: white space that may go on would, with
/// a model that likes it, up to the last token.
const ANSWER: &str =
    r#"{"whitespace_flexible":false,"item_separator":", ?","key_separator":": ?"}"#;

/// Rules for values; each is written once.
#[derive(Default)]
pub(super) struct Values {
    rules: String,
    count: usize,
    text: bool,
    steps: usize,
    /// Bytes of all ways and rules, which are a part of the grammar.
    bytes: usize,
}

impl Values {
    /// The rules the values refer to.
    pub(super) fn rules(&self) -> &str {
        &self.rules
    }

    /// The grammar of a value that fits `schema`, its closing tag included.
    pub(super) fn rule<'a>(
        &mut self,
        schema: &'a Json,
        frame: &Frame<'a>,
    ) -> Result<String, String> {
        let mut ways = Vec::new();
        self.ways(schema, frame, 0, &mut ways)?;
        match ways.len() {
            0 => Err("the schema allows no value at all".to_owned()),
            count if count > MAX_WAYS => {
                Err(format!("`enum` or `anyOf` of {count} values, at most {MAX_WAYS}"))
            }
            _ => Ok(format!("( {} )", self.join(ways).join(" | "))),
        }
    }

    /// The ways with all texts in one expression: as alternatives of a rule each would be followed
    /// alone.
    fn join(&mut self, ways: Vec<String>) -> Vec<String> {
        let (texts, mut others): (Vec<String>, _) =
            ways.into_iter().partition(|way| way.starts_with('"'));
        if !texts.is_empty() {
            self.count += 1;
            let name = format!("VALUE_{}", self.count);
            writeln!(self.rules, "{name}: {}", texts.join(" | ")).expect(STRING);
            others.push(name);
        }
        others
    }

    fn step(&mut self, steps: usize) -> Result<(), String> {
        self.steps += steps;
        match self.steps > MAX_STEPS {
            true => Err(format!(
                "following `anyOf`, `oneOf`, `allOf` and `$ref` takes more than {MAX_STEPS} \
                 steps; use smaller schemas"
            )),
            false => Ok(()),
        }
    }

    /// Counts bytes of the grammar before they are more than any grammar may have.
    fn grow(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes += bytes;
        match self.bytes > MAX_GRAMMAR_BYTES {
            true => Err(format!(
                "the grammar has more than {MAX_GRAMMAR_BYTES} bytes; use smaller schemas"
            )),
            false => Ok(()),
        }
    }

    fn push(&mut self, way: String, ways: &mut Vec<String>) -> Result<(), String> {
        self.grow(way.len())?;
        ways.push(way);
        Ok(())
    }

    fn ways<'a>(
        &mut self,
        schema: &'a Json,
        frame: &Frame<'a>,
        depth: usize,
        ways: &mut Vec<String>,
    ) -> Result<(), String> {
        self.step(VISIT + schema.as_object().unwrap_or_default().len() + kinds(schema).len())?;
        if depth > MAX_DEPTH {
            return Err(format!("`$ref` or `anyOf` nested deeper than {MAX_DEPTH} levels"));
        }
        // The rest only adds to what is too much already.
        if ways.len() > MAX_WAYS {
            return Ok(());
        }
        if *schema == Json::Bool(false) {
            return Ok(());
        }
        let allowed = ["$ref", "const", "enum", "anyOf", "oneOf", "allOf"];
        let Some((choice, value)) =
            allowed.iter().find_map(|key| Some((*key, schema.member(key)?)))
        else {
            return self.typed(schema, frame, ways);
        };
        if whole_json(schema, choice) {
            let mut kinds = kinds(schema).iter().filter_map(Json::as_str);
            return kinds.try_for_each(|kind| self.json(schema, kind, frame, ways));
        }
        alone(schema, choice)?;
        self.null(schema, ways)?;
        let values = value.as_array().unwrap_or_default();
        match choice {
            "$ref" => {
                self.step(value.as_str().unwrap_or_default().len() / VISIT)?;
                let target = frame
                    .references
                    .follow(value)
                    .ok_or_else(|| format!("`$ref` {} points nowhere", value.to_compact()))?;
                self.ways(target, frame, depth + 1, ways)
            }
            "const" => self.push(bare(value), ways),
            "enum" => {
                self.step(values.len().saturating_mul(kinds(schema).len().max(1)))?;
                let mut allowed = values.iter().filter(|value| of_type(schema, value));
                allowed.try_for_each(|value| self.push(bare(value), ways))
            }
            "allOf" if values.len() != 1 => {
                Err("`allOf` of several schemas is not supported here".to_owned())
            }
            _ => values.iter().try_for_each(|branch| self.ways(branch, frame, depth + 1, ways)),
        }
    }

    /// The ways of a schema that is no choice of others.
    fn typed(
        &mut self,
        schema: &Json,
        frame: &Frame<'_>,
        ways: &mut Vec<String>,
    ) -> Result<(), String> {
        if schema.member("type").is_none() {
            let text = self.text();
            return self.push(text, ways);
        }
        for kind in kinds(schema).iter().filter_map(Json::as_str) {
            if kind == "string" {
                let string = self.string(schema, frame.strict)?;
                self.push(string, ways)?;
            } else {
                self.json(schema, kind, frame, ways)?;
            }
        }
        self.null(schema, ways)
    }

    /// A JSON value of one kind.
    fn json(
        &mut self,
        schema: &Json,
        kind: &str,
        frame: &Frame<'_>,
        ways: &mut Vec<String>,
    ) -> Result<(), String> {
        // Before the definitions are written, not after: they may be most of the memory.
        if self.bytes + frame.definitions > MAX_GRAMMAR_BYTES {
            return self.grow(frame.definitions);
        }
        self.push(format!("{} {}", json(schema, kind, frame.root), literal(CLOSER)), ways)
    }

    /// Null, where a schema allows it beside its own values.
    fn null(&mut self, schema: &Json, ways: &mut Vec<String>) -> Result<(), String> {
        match schema.member("nullable").and_then(Json::as_bool) {
            Some(true) => self.push(bare(&Json::Null), ways),
            _ => Ok(()),
        }
    }

    /// A string with what the schema says of it.
    fn string(&mut self, schema: &Json, strict: bool) -> Result<String, String> {
        let length =
            |key: &str| schema.member(key).and_then(Json::as_number).and_then(Number::to_u64);
        let (least, most) = (length("minLength"), length("maxLength"));
        let mut all: Vec<(&str, String)> = Vec::new();
        if least.is_some() || most.is_some() {
            let most = most.map(|most| most.to_string()).unwrap_or_default();
            let sized = format!("(?s:.{{{},{most}}})", least.unwrap_or(0));
            all.push((if least.is_some() { "minLength" } else { "maxLength" }, sized));
        }
        if let Some(pattern) = schema.member("pattern").and_then(Json::as_str) {
            all.push(("pattern", expression::anchored(pattern)));
        }
        if let Some(name) = schema.member("format").and_then(Json::as_str) {
            match expression::of_format(name) {
                Some(expression) => all.push(("format", expression.to_owned())),
                None if strict => {
                    return Err(format!("`format` {name:?} is not supported here, only {FORMATS}"));
                }
                None => {}
            }
        }
        if all.is_empty() {
            return Ok(self.text());
        }
        let mut rule = String::new();
        for (keyword, expression) in &all {
            expression::followable(expression)
                .map_err(|fault| format!("`{keyword}` is not supported: {fault}"))?;
            write!(rule, "/{}/ & ", llguidance::regex_to_lark(expression, "")).expect(STRING);
        }
        self.grow(rule.len())?;
        self.count += 1;
        let name = format!("VALUE_{}", self.count);
        writeln!(
            self.rules,
            "{name}: ( {rule}~/(?s:.*)<\\/atem:parameter>(?s:.*)/ ) {}",
            literal(CLOSER)
        )
        .expect(STRING);
        Ok(name)
    }

    /// Any text up to its closing tag.
    fn text(&mut self) -> String {
        if !std::mem::replace(&mut self.text, true) {
            let rule = format!("text_value[suffix={}]: /(?s:.*)/\n", literal(CLOSER));
            self.rules.push_str(&rule);
        }
        "text_value".to_owned()
    }
}

const STRING: &str = "a String takes all";

/// What the values of one tool have in common.
pub(super) struct Frame<'a> {
    root: &'a Json,
    strict: bool,
    /// Bytes of the definitions as each JSON value repeats them.
    definitions: usize,
    references: References<'a>,
}

impl<'a> Frame<'a> {
    /// Values within the schema `root`. `strict` when formats that are not known here are refused,
    /// not passed over.
    pub(super) fn new(root: &'a Json, strict: bool) -> Self {
        let definitions = DEFINITIONS.iter().filter_map(|key| root.member(key));
        let definitions = definitions.map(|all| all.to_compact().len()).sum();
        Self { root, strict, definitions, references: References::new(root) }
    }
}

/// The types a schema names.
fn kinds(schema: &Json) -> &[Json] {
    let kinds = schema.member("type");
    kinds.map_or(&[], |kinds| kinds.as_array().unwrap_or(std::slice::from_ref(kinds)))
}

/// Whether a schema that is a choice and says more beside is written as JSON: only strings are
/// written differently, so that what its types rule them out of can be honoured as a whole.
fn whole_json(schema: &Json, choice: &str) -> bool {
    let string = |kind: &Json| kind.as_str() == Some("string");
    matches!(choice, "anyOf" | "oneOf" | "allOf")
        && schema.member("type").is_some()
        && !kinds(schema).iter().any(string)
}

/// Refuses keywords beside a choice that would be lost.
fn alone(schema: &Json, choice: &str) -> Result<(), String> {
    let typed = matches!(choice, "enum" | "const");
    let binds = |key: &&(String, Json)| {
        super::shape::binds(&key.0) && key.0 != choice && !(typed && key.0 == "type")
    };
    match schema.as_object().unwrap_or_default().iter().find(binds) {
        Some((key, _)) => Err(format!("`{key}` beside `{choice}` is not supported here")),
        None => Ok(()),
    }
}

/// Whether a value is of a type that the schema names, if it names any.
fn of_type(schema: &Json, value: &Json) -> bool {
    if schema.member("type").is_none() {
        return true;
    }
    kinds(schema).iter().filter_map(Json::as_str).any(|kind| match (kind, value) {
        ("null", Json::Null)
        | ("boolean", Json::Bool(_))
        | ("number", Json::Number(_))
        | ("string", Json::String(_))
        | ("array", Json::Array(_))
        | ("object", Json::Object(_)) => true,
        ("integer", Json::Number(number)) => number.to_f64().fract() == 0.0,
        _ => false,
    })
}

/// One allowed value as the template prints it.
fn bare(value: &Json) -> String {
    let text = match value {
        Json::String(text) => text.clone(),
        Json::Number(number) => number.to_python(),
        value => value.to_python(),
    };
    literal(&(text + CLOSER))
}

/// Where schemas keep the parts they refer to.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// A JSON value of one kind, with the definitions of the whole schema at hand.
fn json(schema: &Json, kind: &str, root: &Json) -> String {
    let members = schema.as_object().unwrap_or_default().iter();
    let mut members: Vec<_> = members.filter(|(key, _)| key != "nullable").cloned().collect();
    members.push(("type".to_owned(), Json::String(kind.to_owned())));
    for key in DEFINITIONS {
        members.extend(root.member(key).map(|defs| (key.to_owned(), defs.clone())));
    }
    with_options(members, NATIVE)
}

/// The answer as JSON that fits a schema.
pub(super) fn answer_json(schema: &Json) -> String {
    match schema {
        Json::Object(members) => with_options(members.clone(), ANSWER),
        Json::Bool(false) => with_options(vec![("not".to_owned(), Json::Object(vec![]))], ANSWER),
        _ => with_options(Vec::new(), ANSWER),
    }
}

fn with_options(mut members: Vec<(String, Json)>, options: &str) -> String {
    let options = Json::parse(options).expect("options are JSON");
    members.push(("x-guidance".to_owned(), options));
    format!("%json {}", Json::object(members).to_compact())
}
