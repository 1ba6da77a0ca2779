//! Reads the tools of a request and how they may be chosen.

use std::collections::HashSet;

use muse_core::contract::Tool;

use super::error::RequestError;
use super::fields::{Fields, wrong};
use crate::json::Json;

/// The most tools of a request.
const MAX_TOOLS: usize = 1024;

const MAX_NAME: usize = 512;

/// The schema of a tool that declares none.
pub const NO_PARAMETERS: &str = r#"{"type":"object","properties":{}}"#;

/// Which tools may or must be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// None; the tools are not even declared.
    None,
    /// At least one call.
    Required,
    /// A call of this tool.
    Named(String),
}

/// The tools of a request.
pub(super) struct Tools {
    /// Those that the prompt declares.
    pub(super) declared: Vec<Tool>,
    /// How they may be chosen.
    pub(super) choice: ToolChoice,
    /// Whether they were given as `functions`.
    pub(super) legacy: bool,
}

/// Reads `tools` and `tool_choice`, or the deprecated `functions` and `function_call`.
pub(super) fn read(fields: &Fields<'_>) -> Result<Tools, RequestError> {
    const TOOLS: (&str, &str) = ("tools", "tool_choice");
    const FUNCTIONS: (&str, &str) = ("functions", "function_call");
    let is_given = |key: &&'static str| match fields.value(key) {
        Some(Json::Array(tools)) => !tools.is_empty(),
        value => value.is_some(),
    };
    let given =
        |(list, choice): (&'static str, &'static str)| [list, choice].into_iter().find(is_given);
    let (legacy, (list, choice_key)) = match (given(TOOLS), given(FUNCTIONS)) {
        (Some(_), Some(key)) => {
            return fields.error(key, "is the deprecated form of `tools`; send one of them");
        }
        (None, Some(_)) => (true, FUNCTIONS),
        _ => (false, TOOLS),
    };
    let listed = fields.list(list)?.unwrap_or_default();
    if listed.len() > MAX_TOOLS {
        return fields.error(list, format!("has {} tools, at most {MAX_TOOLS}", listed.len()));
    }
    let mut names = HashSet::new();
    let mut declared = Vec::with_capacity(listed.len());
    for (i, value) in listed.iter().enumerate() {
        let (fields, tool) = tool(Fields::of(value, fields.path(&format!("{list}[{i}]")))?)?;
        if !names.insert(tool.name.clone()) {
            return fields.error("name", format!("a second tool named `{}`", tool.name));
        }
        declared.push(tool);
    }
    let choice = choice(fields, choice_key, &names)?;
    if choice == ToolChoice::None {
        declared.clear();
    }
    Ok(Tools { declared, choice, legacy })
}

/// A tool, given as `{"type": "function", "function": {…}}` or flat; also returns the object that
/// holds its fields.
fn tool(outer: Fields<'_>) -> Result<(Fields<'_>, Tool), RequestError> {
    let function = outer.object("function")?;
    if let Some(kind) = outer.text("type")?.filter(|kind| *kind != "function") {
        return outer.error("type", format!("unsupported tool type `{kind}`, expected function"));
    }
    let fields = function.unwrap_or(outer);
    let name = fields.required_text("name")?;
    check_tool_name(name).or_else(|message| fields.error("name", message))?;
    let parameters = match fields.value("parameters") {
        None => NO_PARAMETERS.to_owned(),
        Some(schema @ Json::Object(_)) => schema.to_compact(),
        Some(other) => return Err(wrong(fields.path("parameters"), "a JSON schema", other)),
    };
    let tool = Tool {
        name: name.to_owned(),
        description: fields.text("description")?.unwrap_or_default().to_owned(),
        parameters,
        strict: fields.boolean("strict")?.unwrap_or(false),
    };
    Ok((fields, tool))
}

/// Checks the name of a tool: it is written into headers and tags and must not contain what ends
/// those.
///
/// # Errors
/// The message says what was found and which names are allowed.
pub fn check_tool_name(name: &str) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':' | b'-');
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(fits) {
        let start: String = name.chars().take(60).collect();
        return Err(format!(
            "{start:?} ({} bytes) is no tool name, expected 1 to {MAX_NAME} of the letters A-Z \
             a-z 0-9 _ . : -",
            name.len()
        ));
    }
    if matches!(name, "self" | "user") {
        return Err(format!("`{name}` is reserved, choose another tool name"));
    }
    Ok(())
}

/// `tool_choice`, or `function_call`, whose object has the name alone.
fn choice(
    fields: &Fields<'_>,
    key: &str,
    names: &HashSet<String>,
) -> Result<ToolChoice, RequestError> {
    let name = match fields.value(key) {
        None => return Ok(ToolChoice::Auto),
        Some(Json::String(word)) => {
            return match word.as_str() {
                "auto" => Ok(ToolChoice::Auto),
                "none" => Ok(ToolChoice::None),
                "required" if names.is_empty() => {
                    fields.error(key, "is required, but the request declares no tools")
                }
                "required" => Ok(ToolChoice::Required),
                word => fields.error(
                    key,
                    format!("is `{word}`, expected auto, none, required or a named function"),
                ),
            };
        }
        Some(value) => {
            let object = Fields::of(value, fields.path(key))?;
            match object.text("type")? {
                Some("function") => {}
                None if key == "function_call" => {}
                kind => {
                    return object.error(
                        "type",
                        format!("is `{}`, expected function", kind.unwrap_or("missing")),
                    );
                }
            }
            let function = object.object("function")?.unwrap_or(object);
            function.required_text("name")?
        }
    };
    if !names.contains(name) {
        return fields.error(key, format!("names the tool `{name}`, which is not declared"));
    }
    Ok(ToolChoice::Named(name.to_owned()))
}

/// Descriptions of namespaces: a mapping, or absent.
pub(super) fn namespaces(
    fields: &Fields<'_>,
    arguments: &Fields<'_>,
) -> Result<Vec<(String, String)>, RequestError> {
    const KEY: &str = "tool_namespace_descriptions";
    for object in [arguments, fields] {
        if let Some(value) = object.raw(KEY) {
            let mapping = Fields::of(value, object.path(KEY))?;
            let texts = mapping.members().map(|(key, value)| match value {
                Json::String(text) => Ok((key.to_owned(), text.clone())),
                other => Err(wrong(mapping.path(key), "a string", other)),
            });
            return texts.collect();
        }
    }
    Ok(Vec::new())
}
