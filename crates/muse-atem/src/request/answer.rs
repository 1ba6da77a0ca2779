//! Reads what the visible answer must be. OpenAI, vLLM, SGLang, llama.cpp and Ollama have fields
//! of their own for it.

use super::error::RequestError;
use super::fields::{Fields, wrong};
use crate::answer_rule::AnswerRule;
use crate::gbnf;
use crate::json::Json;

/// Reads a rule from the value of a field, and the path of the value.
type ReadRule = fn(&Json, &str) -> Result<AnswerRule, RequestError>;

/// Fields of a request that constrain the answer, beside `response_format` and
/// `structured_outputs`.
const FIELDS: [(&str, ReadRule); 10] = [
    ("ebnf", grammar),
    ("format", ollama_format),
    ("grammar", grammar),
    ("guided_choice", choice),
    ("guided_grammar", grammar),
    ("guided_json", schema),
    ("guided_json_object", json_object),
    ("guided_regex", regex),
    ("json_schema", schema),
    ("regex", regex),
];

/// Members of `structured_outputs`.
const STRUCTURED_OUTPUTS: [(&str, ReadRule); 5] = [
    ("choice", choice),
    ("grammar", grammar),
    ("json", schema),
    ("json_object", json_object),
    ("regex", regex),
];

/// The rule of the answer and the path of the field that it comes from.
pub(super) fn read(fields: &Fields<'_>) -> Result<(AnswerRule, Option<String>), RequestError> {
    let mut found: Option<(AnswerRule, String)> = None;
    let mut add = |rule: AnswerRule, path: String| match &found {
        _ if rule == AnswerRule::Free => Ok(()),
        Some((other, earlier)) if *other != rule => Err(RequestError {
            message: format!("constrains the answer, as `{earlier}` does; send one of them"),
            path,
        }),
        Some(_) => Ok(()),
        None => {
            found = Some((rule, path));
            Ok(())
        }
    };
    if let Some(format) = fields.object("response_format")? {
        add(response_format(&format)?, fields.path("response_format"))?;
    }
    if let Some(outputs) = fields.object("structured_outputs")? {
        for (key, value) in outputs.members().filter(|(_, value)| !value.is_null()) {
            let path = outputs.path(key);
            match STRUCTURED_OUTPUTS.iter().find(|(name, _)| *name == key) {
                Some((_, read)) => add(read(value, &path)?, path)?,
                None if value.as_bool() == Some(false) => {}
                None => {
                    let names = STRUCTURED_OUTPUTS.map(|(name, _)| name).join(", ");
                    return outputs.error(key, format!("is not supported, only {names} are"));
                }
            }
        }
    }
    for (key, read) in FIELDS {
        if let Some(value) = fields.value(key) {
            let path = fields.path(key);
            add(read(value, &path)?, path)?;
        }
    }
    Ok(found.map_or((AnswerRule::Free, None), |(rule, path)| (rule, Some(path))))
}

fn response_format(format: &Fields<'_>) -> Result<AnswerRule, RequestError> {
    let required = |fields: &Fields<'_>, key: &str, read: ReadRule| match fields.value(key) {
        Some(value) => read(value, &fields.path(key)),
        None => fields.error(key, "is missing, expected a JSON schema"),
    };
    match format.required_text("type")? {
        "text" => Ok(AnswerRule::Free),
        "json_object" => match format.value("schema") {
            Some(value) => schema(value, &format.path("schema")),
            None => Ok(AnswerRule::JsonObject),
        },
        "json_schema" => {
            let Some(wrapper) = format.object("json_schema")? else {
                return match format.value("schema") {
                    Some(_) => required(format, "schema", schema),
                    None => format.error("json_schema", "is missing, expected an object"),
                };
            };
            wrapper.boolean("strict")?;
            wrapper.text("description")?;
            wrapper.text("name")?;
            required(&wrapper, "schema", schema)
        }
        "grammar" => match format.value("grammar") {
            Some(value) => grammar(value, &format.path("grammar")),
            None => format.error("grammar", "is missing, expected a grammar"),
        },
        kind => format.error(
            "type",
            format!("is `{kind}`, expected text, json_object, json_schema or grammar"),
        ),
    }
}

/// A JSON schema, or its JSON text.
fn schema(value: &Json, path: &str) -> Result<AnswerRule, RequestError> {
    match value {
        Json::Object(_) | Json::Bool(_) => Ok(AnswerRule::JsonSchema(value.to_compact())),
        Json::String(text) if text.trim().is_empty() => Ok(AnswerRule::Free),
        Json::String(text) => match Json::parse(text) {
            Ok(schema @ (Json::Object(_) | Json::Bool(_))) => {
                Ok(AnswerRule::JsonSchema(schema.to_compact()))
            }
            Ok(other) => Err(wrong(path.to_owned(), "a JSON schema", &other)),
            Err(error) => Err(RequestError {
                path: path.to_owned(),
                message: format!("is no JSON schema: {error}"),
            }),
        },
        other => Err(wrong(path.to_owned(), "a JSON schema", other)),
    }
}

fn json_object(value: &Json, path: &str) -> Result<AnswerRule, RequestError> {
    match value.as_bool() {
        Some(true) => Ok(AnswerRule::JsonObject),
        Some(false) => Ok(AnswerRule::Free),
        None => Err(wrong(path.to_owned(), "a boolean", value)),
    }
}

fn regex(value: &Json, path: &str) -> Result<AnswerRule, RequestError> {
    match value.as_str() {
        Some("") => Ok(AnswerRule::Free),
        Some(regex) => Ok(AnswerRule::Regex(regex.to_owned())),
        None => Err(wrong(path.to_owned(), "a regular expression as a string", value)),
    }
}

fn choice(value: &Json, path: &str) -> Result<AnswerRule, RequestError> {
    let Some(items) = value.as_array() else {
        return Err(wrong(path.to_owned(), "a list of texts", value));
    };
    let texts = items.iter().enumerate().map(|(i, item)| match item {
        Json::String(text) => Ok(text.clone()),
        other => Err(wrong(format!("{path}[{i}]"), "a string", other)),
    });
    match texts.collect::<Result<Vec<_>, _>>()? {
        texts if texts.is_empty() => Err(RequestError {
            path: path.to_owned(),
            message: "is empty, expected at least one text".to_owned(),
        }),
        texts => Ok(AnswerRule::Choice(texts)),
    }
}

/// A grammar in the Lark syntax of llguidance, or in GBNF as llama.cpp reads it.
fn grammar(value: &Json, path: &str) -> Result<AnswerRule, RequestError> {
    match value.as_str() {
        None => Err(wrong(path.to_owned(), "a grammar as a string", value)),
        Some(text) if text.trim().is_empty() => Ok(AnswerRule::Free),
        Some(text) if !gbnf::is_gbnf(text) => Ok(AnswerRule::Lark(text.to_owned())),
        Some(text) => match gbnf::translate(text) {
            Ok(_) => Ok(AnswerRule::Gbnf(text.to_owned())),
            Err(error) => Err(RequestError {
                path: path.to_owned(),
                message: format!("the GBNF grammar cannot be honoured: {error}"),
            }),
        },
    }
}

/// Ollama's `format`: `json`, or a schema.
fn ollama_format(value: &Json, path: &str) -> Result<AnswerRule, RequestError> {
    match value {
        Json::String(text) if text.is_empty() => Ok(AnswerRule::Free),
        Json::String(text) if text == "json" => Ok(AnswerRule::JsonObject),
        Json::Object(_) => schema(value, path),
        other => Err(RequestError {
            path: path.to_owned(),
            message: format!("is {}, expected \"json\" or a JSON schema", other.kind()),
        }),
    }
}
