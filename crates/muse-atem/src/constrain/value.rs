//! Values of parameters as the template writes them: strings bare, the rest as JSON.

use std::fmt::Write;

use super::native::literal;
use crate::json::{Json, Number};

/// What ends a value.
const CLOSER: &str = "</atem:parameter>\n";

/// How deep unions and references of a schema are followed.
const MAX_DEPTH: usize = 16;

/// How the template separates: nothing to choose, so that output stays short and history equal.
const NATIVE: &str = r#"{"whitespace_flexible":false,"item_separator":", ","key_separator":": "}"#;

/// Answers may be laid out over lines, but white space must not go on forever.
const ANSWER: &str = r#"{"whitespace_pattern":"[ \\n]{1,40}"}"#;

/// Rules for values; each is written once.
#[derive(Default)]
pub(super) struct Values {
    rules: String,
    count: usize,
    text: bool,
}

impl Values {
    /// The rules the values refer to.
    pub(super) fn rules(&self) -> &str {
        &self.rules
    }

    /// The grammar of a value that fits `schema`, its closing tag included.
    pub(super) fn rule(&mut self, schema: &Json, root: &Json) -> Result<String, String> {
        let mut ways = Vec::new();
        self.ways(schema, root, 0, &mut ways)?;
        if ways.is_empty() {
            return Err("the schema allows no value at all".to_owned());
        }
        Ok(format!("( {} )", ways.join(" | ")))
    }

    fn ways(
        &mut self,
        schema: &Json,
        root: &Json,
        depth: usize,
        ways: &mut Vec<String>,
    ) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("`$ref` or `anyOf` nested deeper than {MAX_DEPTH} levels"));
        }
        if let Some(target) = schema.member("$ref") {
            let target = crate::json::follow(target, root)
                .ok_or_else(|| format!("`$ref` {} points nowhere", target.to_compact()))?;
            return self.ways(target, root, depth + 1, ways);
        }
        if let Some(value) = schema.member("const") {
            ways.push(bare(value));
            return Ok(());
        }
        if let Some(values) = schema.member("enum").and_then(Json::as_array) {
            ways.extend(values.iter().map(bare));
            return Ok(());
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(branches) = schema.member(key).and_then(Json::as_array) {
                return branches
                    .iter()
                    .try_for_each(|branch| self.ways(branch, root, depth + 1, ways));
            }
        }
        if let Some(parts) = schema.member("allOf").and_then(Json::as_array) {
            let [part] = parts else {
                return Err("`allOf` of several schemas is not supported here".to_owned());
            };
            return self.ways(part, root, depth + 1, ways);
        }
        let Some(kind) = schema.member("type") else {
            ways.push(self.text());
            return Ok(());
        };
        let kinds = kind.as_array().unwrap_or(std::slice::from_ref(kind));
        for kind in kinds.iter().filter_map(Json::as_str) {
            let way = match kind {
                "string" => self.string(schema)?,
                kind => format!("{} {}", json(schema, kind, root), literal(CLOSER)),
            };
            ways.push(way);
        }
        if schema.member("nullable").and_then(Json::as_bool) == Some(true) {
            ways.push(bare(&Json::Null));
        }
        Ok(())
    }

    /// A string with what the schema says of it.
    fn string(&mut self, schema: &Json) -> Result<String, String> {
        let length =
            |key: &str| schema.member(key).and_then(Json::as_number).and_then(Number::to_u64);
        let (least, most) = (length("minLength"), length("maxLength"));
        let pattern = schema.member("pattern").and_then(Json::as_str);
        let expression = match pattern {
            None if least.is_none() && most.is_none() => return Ok(self.text()),
            None => {
                let most = most.map(|most| most.to_string()).unwrap_or_default();
                format!("(?s:.{{{},{most}}})", least.unwrap_or(0))
            }
            Some(_) if least.is_some() || most.is_some() => {
                return Err(
                    "`pattern` beside `minLength` or `maxLength` is not supported".to_owned()
                );
            }
            Some(pattern) => anchored(pattern),
        };
        check(&expression).map_err(|fault| match pattern {
            Some(_) => format!("`pattern` is not supported: {fault}"),
            None => format!("`minLength` or `maxLength` is not supported: {fault}"),
        })?;
        self.count += 1;
        let name = format!("VALUE_{}", self.count);
        writeln!(
            self.rules,
            "{name}: ( /{}/ & ~/(?s:.*)<\\/atem:parameter>(?s:.*)/ ) {}",
            llguidance::regex_to_lark(&expression, ""),
            literal(CLOSER)
        )
        .expect("a String takes all");
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

/// An expression that matches the whole text when `pattern` matches somewhere in it.
fn anchored(pattern: &str) -> String {
    let (open, rest) = match pattern.strip_prefix('^') {
        Some(rest) => ("", rest),
        None => ("(?s:.*)", pattern),
    };
    match rest.strip_suffix('$').filter(|rest| !rest.ends_with('\\')) {
        Some(rest) => format!("{open}({rest})"),
        None => format!("{open}({rest})(?s:.*)"),
    }
}

/// Whether the expression can be run in linear time.
fn check(expression: &str) -> Result<(), String> {
    let mut builder = llguidance::derivre::RegexBuilder::new();
    builder.mk_regex(expression).map(|_| ()).map_err(|fault| fault.to_string())
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

/// A JSON value of one kind, with the definitions of the whole schema at hand.
fn json(schema: &Json, kind: &str, root: &Json) -> String {
    let members = schema.as_object().unwrap_or_default().iter();
    let mut members: Vec<_> = members.filter(|(key, _)| key != "nullable").cloned().collect();
    members.push(("type".to_owned(), Json::String(kind.to_owned())));
    for key in ["$defs", "definitions"] {
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

/// The keyword a compiler's complaint is about, when it does not say so itself: the one of the
/// schema that its complaint can only mean.
pub(super) fn refused_keyword(schema: &str, fault: &str) -> String {
    const TELLING: [(&str, &str); 3] =
        [("regex", "pattern"), ("look", "pattern"), ("reference", "$ref")];
    let quoted = |keyword: &str| schema.contains(&format!("\"{keyword}\""));
    let fault = fault.to_lowercase();
    match TELLING.iter().find(|(word, keyword)| fault.contains(word) && quoted(keyword)) {
        Some((_, keyword)) => format!(" (keyword `{keyword}`)"),
        None => String::new(),
    }
}
