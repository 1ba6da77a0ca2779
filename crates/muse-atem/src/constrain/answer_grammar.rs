//! The grammar of a whole answer in the model's own format: reasoning, tool calls and the visible
//! answer, with their headers.

use std::collections::HashSet;
use std::fmt::Write;

use muse_core::contract::{Conversation, Tokenizer, Tool};
use muse_core::{Error, Result};

use super::lark::literal;
use super::limits::MAX_TEXT_BYTES;
use super::parameter_value::{self, ParameterRules, ToolSchema};
use super::regex;
use super::schema_check::{self, SchemaTotals};
use crate::answer_prefix::AnswerPrefix;
use crate::answer_rule::AnswerRule;
use crate::gbnf;
use crate::json::{Json, first, follow};
use crate::request::ToolChoice;
use crate::special_token::SpecialToken;

/// The name by which the grammar of the answer refers to a grammar of the client's own.
pub(super) const ANSWER: &str = "answer";

/// The grammar of an answer in the Lark syntax of llguidance; none when any answer is allowed.
pub(super) fn answer_grammar(
    conversation: &Conversation,
    choice: &ToolChoice,
    answer: &AnswerRule,
    tokenizer: &dyn Tokenizer,
) -> Result<Option<String>> {
    let tools = match choice {
        ToolChoice::None => &[],
        _ => conversation.tools.as_slice(),
    };
    let must_call = matches!(choice, ToolChoice::Required | ToolChoice::Named(_));
    if *answer == AnswerRule::Free && !must_call && !tools.iter().any(|tool| tool.strict) {
        return Ok(None);
    }
    let token =
        |special: SpecialToken| special.id(tokenizer).map(|token| format!("<[{}]>", token.0));
    let special = SpecialTokens {
        message: token(SpecialToken::Message)?,
        end: token(SpecialToken::EndOfTurn)?,
        next: format!(
            "{} {} \"assistant\"",
            token(SpecialToken::EndOfMessage)?,
            token(SpecialToken::Start)?
        ),
    };
    if *choice == ToolChoice::Required && tools.is_empty() {
        return Err(Error::Invalid(
            "tool_choice demands a call, but no tool is declared; declare one or choose auto"
                .to_owned(),
        ));
    }
    let mut out = String::new();
    let mut values = ParameterRules::default();
    let mut totals = SchemaTotals::default();
    match choice {
        ToolChoice::Named(name) => {
            let tool = tools.iter().find(|tool| tool.name == *name).ok_or_else(|| {
                Error::Invalid(format!("tool_choice names `{name}`, which is not declared"))
            })?;
            writeln!(out, "start: block_0 {}", special.end).expect(STRING);
            tool_block(0, tool, &mut values, &mut totals, &mut out)?;
        }
        _ => {
            start(conversation, tools, answer, &special, tokenizer, &mut out)?;
            let free_after_call = !conversation.single_call;
            messages(tools, choice, answer, &special, free_after_call, &mut totals, &mut out)?;
            for (i, tool) in tools.iter().enumerate() {
                if tool.strict || must_call {
                    tool_block(i, tool, &mut values, &mut totals, &mut out)?;
                }
            }
        }
    }
    out.push_str("TEXT: /(?s:.*)/\n");
    out.push_str(values.rules());
    Ok(Some(out))
}

const STRING: &str = "a String takes all";

/// Special tokens as the grammar spells them.
struct SpecialTokens {
    message: String,
    end: String,
    /// Ends a message and begins the next.
    next: String,
}

/// Where the answer begins: with a header, or in a message whose header the prompt has.
fn start(
    conversation: &Conversation,
    tools: &[Tool],
    answer: &AnswerRule,
    special: &SpecialTokens,
    tokenizer: &dyn Tokenizer,
    out: &mut String,
) -> Result<()> {
    let SpecialTokens { end, next, .. } = special;
    let start = match AnswerPrefix::of(&conversation.answer_prefix) {
        None if conversation.omit_generation_prompt => {
            let start = SpecialToken::Start.id(tokenizer)?;
            format!("<[{}]> \"assistant\" messages", start.0)
        }
        None => "messages".to_owned(),
        Some(prefix) if prefix.is_reasoning() => format!("TEXT {next} messages"),
        Some(_) if *answer == AnswerRule::Free && !tools.is_empty() => {
            format!("body ( {end} | {next} messages )")
        }
        Some(_) => format!("body {end}"),
    };
    writeln!(out, "start: {start}").expect(STRING);
    Ok(())
}

fn messages(
    tools: &[Tool],
    choice: &ToolChoice,
    answer: &AnswerRule,
    special: &SpecialTokens,
    more_calls: bool,
    totals: &mut SchemaTotals,
    out: &mut String,
) -> Result<()> {
    let SpecialTokens { message, end, next } = special;
    let required = *choice == ToolChoice::Required;
    let mut alternatives = Vec::new();
    if !required {
        alternatives.push(format!("answer {end}"));
        // Only an unconstrained answer may be followed by another message.
        if *answer == AnswerRule::Free && !tools.is_empty() {
            alternatives.push(format!("answer {next} messages"));
        }
    }
    if !tools.is_empty() {
        alternatives.push(format!("call {end}"));
        if more_calls {
            alternatives.push(format!("call {next} messages"));
        }
    }
    writeln!(out, "messages: reasoning* ( {} )", alternatives.join(" | ")).expect(STRING);
    writeln!(out, "reasoning: \" to=self\" {message} TEXT {next}").expect(STRING);
    if !required {
        writeln!(out, "answer: \" to=user\" {message} body").expect(STRING);
        body(answer, totals, out)?;
    }
    let calls: Vec<String> = tools
        .iter()
        .enumerate()
        .map(|(i, tool)| {
            let header = format!("{} {message}", literal(&format!(" to={}", tool.name)));
            let native = tool.strict || required;
            if native { format!("{header} block_{i}") } else { format!("{header} TEXT") }
        })
        .collect();
    if !calls.is_empty() {
        writeln!(out, "call: {}", calls.join(" | ")).expect(STRING);
    }
    Ok(())
}

fn body(answer: &AnswerRule, totals: &mut SchemaTotals, out: &mut String) -> Result<()> {
    let body = match answer {
        AnswerRule::Free => "TEXT".to_owned(),
        AnswerRule::JsonObject => parameter_value::answer_json(&Json::object(vec![(
            "type".to_owned(),
            Json::String("object".to_owned()),
        )])),
        AnswerRule::JsonSchema(schema) => {
            let schema = Json::parse(schema)
                .map_err(|e| Error::Invalid(format!("the schema is not JSON: {e}")))?;
            let error = |error: String| {
                Error::Invalid(format!("the JSON schema cannot be honoured: {error}"))
            };
            if schema == Json::Bool(false) {
                return Err(error(
                    "it is `false`, which allows no value; use `true` for any".into(),
                ));
            }
            schema_check::check(&schema, totals).map_err(error)?;
            parameter_value::answer_json(&schema)
        }
        AnswerRule::Regex(pattern) => {
            regex::check(pattern).map_err(|error| {
                let quoted = regex::quoted(pattern);
                Error::Invalid(format!("the regular expression {quoted} is not supported: {error}"))
            })?;
            format!("@{ANSWER}")
        }
        AnswerRule::Lark(grammar) => {
            check_embedded_schemas(grammar, totals).map_err(|error| {
                Error::Invalid(format!("the grammar cannot be honoured: {error}"))
            })?;
            format!("@{ANSWER}")
        }
        AnswerRule::Gbnf(grammar) => {
            gbnf::translate(grammar).map_err(|error| {
                Error::Invalid(format!("the GBNF grammar cannot be honoured: {error}"))
            })?;
            format!("@{ANSWER}")
        }
        AnswerRule::Choice(texts) => choice(texts, out)?,
    };
    writeln!(out, "body: {body}").expect(STRING);
    Ok(())
}

/// Checks the JSON schemas within a client's grammar: they cost as much as others.
fn check_embedded_schemas(grammar: &str, totals: &mut SchemaTotals) -> Result<(), String> {
    const KEYWORD: &str = "%json";
    let mut rest = grammar;
    while let Some(at) = rest.find(KEYWORD) {
        rest = &rest[at + KEYWORD.len()..];
        let (schema, end) = first(rest)
            .map_err(|error| format!("after `{KEYWORD}` there is no JSON schema: {error}"))?;
        schema_check::check(&schema, totals)?;
        rest = &rest[end..];
    }
    Ok(())
}

/// One of several texts, as a terminal: alternatives of a rule would each be parsed separately.
fn choice(texts: &[String], out: &mut String) -> Result<String> {
    if texts.is_empty() {
        return Err(Error::Invalid("a choice of no texts cannot be met".to_owned()));
    }
    if let Some(long) = texts.iter().find(|text| text.len() > MAX_TEXT_BYTES) {
        return Err(Error::Invalid(format!(
            "a choice has {} bytes, at most {MAX_TEXT_BYTES}; use shorter texts",
            long.len()
        )));
    }
    let written: Vec<String> =
        texts.iter().filter(|text| !text.is_empty()).map(|text| literal(text)).collect();
    if written.is_empty() {
        return Ok("\"\"".to_owned());
    }
    writeln!(out, "CHOICE: {}", written.join(" | ")).expect(STRING);
    Ok(if written.len() < texts.len() { "CHOICE?" } else { "CHOICE" }.to_owned())
}

/// A call of a tool with its parameters in the order of the schema; optional ones may be left out.
fn tool_block(
    i: usize,
    tool: &Tool,
    values: &mut ParameterRules,
    totals: &mut SchemaTotals,
    out: &mut String,
) -> Result<()> {
    let error = |error: String| Error::Invalid(format!("tool `{}`: {error}", tool.name));
    let root = Json::parse(&tool.parameters)
        .map_err(|e| error(format!("parameters are not a JSON schema: {e}")))?;
    schema_check::check(&root, totals).map_err(error)?;
    let object = arguments(&root, tool.strict).map_err(error)?;
    let schema_of_tool = ToolSchema::new(&root, tool.strict);
    let list = |key| object.member(key).and_then(Json::as_array).unwrap_or_default();
    let required: HashSet<&str> = list("required").iter().filter_map(Json::as_str).collect();
    let properties = object.member("properties").and_then(Json::as_object).unwrap_or_default();
    let declared: HashSet<&str> = properties.iter().map(|(key, _)| key.as_str()).collect();
    let mut names = list("required").iter().filter_map(Json::as_str);
    if let Some(missing) = names.find(|key| !declared.contains(key)) {
        return Err(error(format!(
            "`required` names `{missing}`, which `properties` does not declare"
        )));
    }
    let open = format!("<atem:function_calls>\n<atem:invoke name=\"{}\">\n", tool.name);
    write!(out, "block_{i}: {}", literal(&open)).expect(STRING);
    for (key, schema) in properties {
        if key.is_empty() || key.contains(['"', '<', '\n']) {
            return Err(error(format!(
                "parameter {key:?} cannot be written in a call; use names without quotes, < and \
                 line breaks"
            )));
        }
        let value = values
            .rule(schema, &schema_of_tool)
            .map_err(|why| error(format!("parameter `{key}`: {why}")))?;
        let open = literal(&format!("<atem:parameter name=\"{key}\">"));
        let optional = if required.contains(key.as_str()) { "" } else { "?" };
        write!(out, " ( {open} {value} ){optional}").expect(STRING);
    }
    writeln!(out, " {}", literal("</atem:invoke>\n</atem:function_calls>")).expect(STRING);
    Ok(())
}

/// The schema that declares the properties: `root`, or what it refers to. With `strict`, keywords
/// over all arguments are refused: they cannot be enforced parameter by parameter.
fn arguments(root: &Json, strict: bool) -> Result<&Json, String> {
    const WHOLE: [&str; 7] =
        ["anyOf", "oneOf", "allOf", "const", "enum", "minProperties", "maxProperties"];
    let mut schema = root;
    for _ in 0..parameter_value::MAX_DEPTH {
        if let Some(keyword) = WHOLE.iter().find(|key| schema.member(key).is_some())
            && strict
        {
            return Err(format!("keyword `{keyword}` over all arguments is not supported"));
        }
        match schema.member("$ref").and_then(|target| follow(target, root)) {
            Some(target) => schema = target,
            None => return Ok(schema),
        }
    }
    Err(format!("`$ref` leads on for more than {} steps", parameter_value::MAX_DEPTH))
}
