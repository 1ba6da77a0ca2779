//! Grammar rules for the values of parameters as the chat template writes them: strings as they
//! are, everything else as JSON.

use std::fmt::Write;

use super::lark::literal;
use super::limits::MAX_GRAMMAR_BYTES;
use super::regex::{self, FORMATS};
use crate::json::{Json, Number, References};

/// What ends a value.
const CLOSER: &str = "</atem:parameter>\n";

/// How deep unions and references of a schema are followed.
pub(super) const MAX_DEPTH: usize = 16;

/// The most alternatives of one value.
const MAX_ALTERNATIVES: usize = 4096;

/// The most steps through the schemas of one answer: a few schemas that refer to each other can
/// expand to more than can be processed, even if they allow no value.
const MAX_STEPS: usize = 1 << 20;

/// Steps counted for a schema, in addition to those for its members.
const STEPS_PER_SCHEMA: usize = 16;

/// Separators as the template writes them. There is only one spelling, so that calls are short and
/// re-render to the same bytes.
const TEMPLATE_JSON: &str =
    r#"{"whitespace_flexible":false,"item_separator":", ","key_separator":": "}"#;

/// An answer may be compact or have a space after separators, on one line. Other white space is not
/// allowed: some models would repeat it up to the token limit.
const ANSWER_JSON: &str =
    r#"{"whitespace_flexible":false,"item_separator":", ?","key_separator":": ?"}"#;

/// The rules of the values of an answer; each is written once.
#[derive(Default)]
pub(super) struct ParameterRules {
    rules: String,
    count: usize,
    text: bool,
    steps: usize,
    /// Bytes of all alternatives and rules.
    bytes: usize,
}

impl ParameterRules {
    /// The rules that the values refer to.
    pub(super) fn rules(&self) -> &str {
        &self.rules
    }

    /// A reference to the rule of a value that fits `schema`, its closing tag included.
    pub(super) fn rule<'a>(
        &mut self,
        schema: &'a Json,
        tool: &ToolSchema<'a>,
    ) -> Result<String, String> {
        let mut alternatives = Vec::new();
        self.alternatives(schema, tool, 0, &mut alternatives)?;
        match alternatives.len() {
            0 => Err("the schema allows no value at all".to_owned()),
            count if count > MAX_ALTERNATIVES => {
                Err(format!("`enum` or `anyOf` of {count} values, at most {MAX_ALTERNATIVES}"))
            }
            _ => Ok(format!("( {} )", self.join(alternatives).join(" | "))),
        }
    }

    /// Joins all texts into one terminal: as alternatives of a rule each would be parsed
    /// separately.
    fn join(&mut self, alternatives: Vec<String>) -> Vec<String> {
        let (texts, mut others): (Vec<String>, _) =
            alternatives.into_iter().partition(|alternative| alternative.starts_with('"'));
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

    /// Counts bytes of the grammar, so that it fails before it exceeds the limit.
    fn grow(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes += bytes;
        match self.bytes > MAX_GRAMMAR_BYTES {
            true => Err(format!(
                "the grammar has more than {MAX_GRAMMAR_BYTES} bytes; use smaller schemas"
            )),
            false => Ok(()),
        }
    }

    fn push(&mut self, alternative: String, alternatives: &mut Vec<String>) -> Result<(), String> {
        self.grow(alternative.len())?;
        alternatives.push(alternative);
        Ok(())
    }

    fn alternatives<'a>(
        &mut self,
        schema: &'a Json,
        tool: &ToolSchema<'a>,
        depth: usize,
        alternatives: &mut Vec<String>,
    ) -> Result<(), String> {
        self.step(
            STEPS_PER_SCHEMA + schema.as_object().unwrap_or_default().len() + types(schema).len(),
        )?;
        if depth > MAX_DEPTH {
            return Err(format!("`$ref` or `anyOf` nested deeper than {MAX_DEPTH} levels"));
        }
        // There are too many alternatives already.
        if alternatives.len() > MAX_ALTERNATIVES {
            return Ok(());
        }
        if *schema == Json::Bool(false) {
            return Ok(());
        }
        let allowed = ["$ref", "const", "enum", "anyOf", "oneOf", "allOf"];
        let Some((choice, value)) =
            allowed.iter().find_map(|key| Some((*key, schema.member(key)?)))
        else {
            return self.by_type(schema, tool, alternatives);
        };
        if is_json_only(schema, choice) {
            let mut types = types(schema).iter().filter_map(Json::as_str);
            return types
                .try_for_each(|type_name| self.json(schema, type_name, tool, alternatives));
        }
        check_alone(schema, choice)?;
        self.null(schema, alternatives)?;
        let values = value.as_array().unwrap_or_default();
        match choice {
            "$ref" => {
                self.step(value.as_str().unwrap_or_default().len() / STEPS_PER_SCHEMA)?;
                let target = tool
                    .references
                    .follow(value)
                    .ok_or_else(|| format!("`$ref` {} points nowhere", value.to_compact()))?;
                self.alternatives(target, tool, depth + 1, alternatives)
            }
            "const" => self.push(as_text(value), alternatives),
            "enum" => {
                self.step(values.len().saturating_mul(types(schema).len().max(1)))?;
                let mut allowed = values.iter().filter(|value| of_type(schema, value));
                allowed.try_for_each(|value| self.push(as_text(value), alternatives))
            }
            "allOf" if values.len() != 1 => {
                Err("`allOf` of several schemas is not supported here".to_owned())
            }
            _ => values
                .iter()
                .try_for_each(|branch| self.alternatives(branch, tool, depth + 1, alternatives)),
        }
    }

    /// The alternatives of a schema without references and unions.
    fn by_type(
        &mut self,
        schema: &Json,
        tool: &ToolSchema<'_>,
        alternatives: &mut Vec<String>,
    ) -> Result<(), String> {
        if schema.member("type").is_none() {
            let text = self.text();
            return self.push(text, alternatives);
        }
        for type_name in types(schema).iter().filter_map(Json::as_str) {
            if type_name == "string" {
                let string = self.string(schema, tool.strict)?;
                self.push(string, alternatives)?;
            } else {
                self.json(schema, type_name, tool, alternatives)?;
            }
        }
        self.null(schema, alternatives)
    }

    /// A JSON value of one type.
    fn json(
        &mut self,
        schema: &Json,
        type_name: &str,
        tool: &ToolSchema<'_>,
        alternatives: &mut Vec<String>,
    ) -> Result<(), String> {
        // Checked before the definitions are written: they can be most of the memory.
        if self.bytes + tool.definitions > MAX_GRAMMAR_BYTES {
            return self.grow(tool.definitions);
        }
        self.push(
            format!("{} {}", json(schema, type_name, tool.root), literal(CLOSER)),
            alternatives,
        )
    }

    /// `null`, where `nullable` allows it.
    fn null(&mut self, schema: &Json, alternatives: &mut Vec<String>) -> Result<(), String> {
        match schema.member("nullable").and_then(Json::as_bool) {
            Some(true) => self.push(as_text(&Json::Null), alternatives),
            _ => Ok(()),
        }
    }

    /// A string with its length, pattern and format.
    fn string(&mut self, schema: &Json, strict: bool) -> Result<String, String> {
        let length =
            |key: &str| schema.member(key).and_then(Json::as_number).and_then(Number::to_u64);
        let (min, max) = (length("minLength"), length("maxLength"));
        let mut all: Vec<(&str, String)> = Vec::new();
        if min.is_some() || max.is_some() {
            let max = max.map(|max| max.to_string()).unwrap_or_default();
            let sized = format!("(?s:.{{{},{max}}})", min.unwrap_or(0));
            all.push((if min.is_some() { "minLength" } else { "maxLength" }, sized));
        }
        if let Some(pattern) = schema.member("pattern").and_then(Json::as_str) {
            all.push(("pattern", regex::anchored(pattern)));
        }
        if let Some(name) = schema.member("format").and_then(Json::as_str) {
            match regex::of_format(name) {
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
            regex::check_supported(expression)
                .map_err(|error| format!("`{keyword}` is not supported: {error}"))?;
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

/// What the values of one tool share.
pub(super) struct ToolSchema<'a> {
    root: &'a Json,
    strict: bool,
    /// Bytes of the definitions, which each JSON value repeats.
    definitions: usize,
    references: References<'a>,
}

impl<'a> ToolSchema<'a> {
    /// Values within the schema `root`. With `strict`, unknown formats are refused, otherwise they
    /// are ignored.
    pub(super) fn new(root: &'a Json, strict: bool) -> Self {
        let definitions = DEFINITIONS.iter().filter_map(|key| root.member(key));
        let definitions = definitions.map(|all| all.to_compact().len()).sum();
        Self { root, strict, definitions, references: References::new(root) }
    }
}

/// The types that a schema names.
fn types(schema: &Json) -> &[Json] {
    let types = schema.member("type");
    types.map_or(&[], |types| types.as_array().unwrap_or(std::slice::from_ref(types)))
}

/// Whether a union with keywords beside it can be written as JSON as a whole: it can unless it
/// allows strings, which alone are written differently.
fn is_json_only(schema: &Json, choice: &str) -> bool {
    let string = |type_name: &Json| type_name.as_str() == Some("string");
    matches!(choice, "anyOf" | "oneOf" | "allOf")
        && schema.member("type").is_some()
        && !types(schema).iter().any(string)
}

/// Refuses keywords beside a reference or union that would be ignored.
fn check_alone(schema: &Json, choice: &str) -> Result<(), String> {
    let typed = matches!(choice, "enum" | "const");
    let binds = |key: &&(String, Json)| {
        super::schema_check::binds(&key.0) && key.0 != choice && !(typed && key.0 == "type")
    };
    match schema.as_object().unwrap_or_default().iter().find(binds) {
        Some((key, _)) => Err(format!("`{key}` beside `{choice}` is not supported here")),
        None => Ok(()),
    }
}

/// Whether a value has a type that the schema names, if it names any.
fn of_type(schema: &Json, value: &Json) -> bool {
    if schema.member("type").is_none() {
        return true;
    }
    types(schema).iter().filter_map(Json::as_str).any(|type_name| match (type_name, value) {
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

/// An allowed value as the template prints it.
fn as_text(value: &Json) -> String {
    let text = match value {
        Json::String(text) => text.clone(),
        Json::Number(number) => number.to_python(),
        value => value.to_python(),
    };
    literal(&(text + CLOSER))
}

/// Where schemas keep the parts they refer to.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// A JSON value of one type, together with the definitions of the whole schema.
fn json(schema: &Json, type_name: &str, root: &Json) -> String {
    let members = schema.as_object().unwrap_or_default().iter();
    let mut members: Vec<_> = members.filter(|(key, _)| key != "nullable").cloned().collect();
    members.push(("type".to_owned(), Json::String(type_name.to_owned())));
    for key in DEFINITIONS {
        members.extend(root.member(key).map(|defs| (key.to_owned(), defs.clone())));
    }
    with_options(members, TEMPLATE_JSON)
}

/// An answer that is JSON and fits a schema.
pub(super) fn answer_json(schema: &Json) -> String {
    match schema {
        Json::Object(members) => with_options(members.clone(), ANSWER_JSON),
        Json::Bool(false) => {
            with_options(vec![("not".to_owned(), Json::Object(vec![]))], ANSWER_JSON)
        }
        _ => with_options(Vec::new(), ANSWER_JSON),
    }
}

fn with_options(mut members: Vec<(String, Json)>, options: &str) -> String {
    let options = Json::parse(options).expect("options are JSON");
    members.push(("x-guidance".to_owned(), options));
    format!("%json {}", Json::object(members).to_compact())
}
