//! The grammar of a turn, in the model's own format: reasoning, calls, and the answer.

use std::collections::HashSet;
use std::fmt::Write;

use muse_core::contract::{Conversation, Token, Tokenizer, Tool};
use muse_core::{Error, Result};

use super::shape::{self, Spent};
use super::value::{self, Frame, Values};
use super::{AnswerRule, MAX_TEXT_BYTES, expression};
use crate::json::{Json, first, follow};
use crate::mark::Mark;
use crate::request::ToolChoice;

/// The name under which the turn refers to a grammar of the client's own.
pub(super) const ANSWER: &str = "answer";

/// The token of a mark.
pub(super) fn mark(mark: Mark, tokenizer: &dyn Tokenizer) -> Result<Token> {
    tokenizer
        .special_token(mark.text())
        .ok_or_else(|| Error::Corrupt(format!("the vocabulary has no token {}", mark.text())))
}

/// The grammar of a turn in the Lark syntax; none when every turn is allowed.
pub(super) fn turn(
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
    let token = |which| mark(which, tokenizer).map(|token| format!("<[{}]>", token.0));
    let marks = Marks {
        message: token(Mark::Message)?,
        end: token(Mark::EndOfTurn)?,
        next: format!("{} {} \"assistant\"", token(Mark::EndOfMessage)?, token(Mark::Start)?),
    };
    if *choice == ToolChoice::Required && tools.is_empty() {
        return Err(Error::Invalid(
            "tool_choice demands a call, but no tool is declared; declare one or choose auto"
                .to_owned(),
        ));
    }
    let mut out = String::new();
    let mut values = Values::default();
    let mut spent = Spent::default();
    match choice {
        ToolChoice::Named(name) => {
            let tool = tools.iter().find(|tool| tool.name == *name).ok_or_else(|| {
                Error::Invalid(format!("tool_choice names `{name}`, which is not declared"))
            })?;
            writeln!(out, "start: block_0 {}", marks.end).expect(STRING);
            block(0, tool, &mut values, &mut spent, &mut out)?;
        }
        // The header was committed in the prompt.
        _ if !conversation.answer_prefix.is_empty() => {
            writeln!(out, "start: body {}", marks.end).expect(STRING);
            body(answer, &mut spent, &mut out)?;
        }
        _ => {
            let free_after_call = !conversation.single_call;
            turns(tools, choice, answer, &marks, free_after_call, &mut spent, &mut out)?;
            for (i, tool) in tools.iter().enumerate() {
                if tool.strict || must_call {
                    block(i, tool, &mut values, &mut spent, &mut out)?;
                }
            }
        }
    }
    out.push_str("TEXT: /(?s:.*)/\n");
    out.push_str(values.rules());
    Ok(Some(out))
}

const STRING: &str = "a String takes all";

/// Marks as the grammar spells them.
struct Marks {
    message: String,
    end: String,
    /// Ends a message and begins the next.
    next: String,
}

fn turns(
    tools: &[Tool],
    choice: &ToolChoice,
    answer: &AnswerRule,
    marks: &Marks,
    goes_on: bool,
    spent: &mut Spent,
    out: &mut String,
) -> Result<()> {
    let Marks { message, end, next } = marks;
    let required = *choice == ToolChoice::Required;
    let mut ways = Vec::new();
    if !required {
        ways.push(format!("answer {end}"));
        // Only an answer that may be anything can be continued by another one.
        if *answer == AnswerRule::Free && !tools.is_empty() {
            ways.push(format!("answer {next} start"));
        }
    }
    if !tools.is_empty() {
        ways.push(format!("call {end}"));
        if goes_on {
            ways.push(format!("call {next} start"));
        }
    }
    writeln!(out, "start: thought* ( {} )", ways.join(" | ")).expect(STRING);
    writeln!(out, "thought: \" to=self\" {message} TEXT {next}").expect(STRING);
    if !required {
        writeln!(out, "answer: \" to=user\" {message} body").expect(STRING);
        body(answer, spent, out)?;
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

fn body(answer: &AnswerRule, spent: &mut Spent, out: &mut String) -> Result<()> {
    let body = match answer {
        AnswerRule::Free => "TEXT".to_owned(),
        AnswerRule::JsonObject => value::answer_json(&Json::object(vec![(
            "type".to_owned(),
            Json::String("object".to_owned()),
        )])),
        AnswerRule::JsonSchema(schema) => {
            let schema = Json::parse(schema)
                .map_err(|e| Error::Invalid(format!("the schema is not JSON: {e}")))?;
            let fault = |fault: String| {
                Error::Invalid(format!("the JSON schema cannot be honoured: {fault}"))
            };
            if schema == Json::Bool(false) {
                return Err(fault(
                    "it is `false`, which allows no value; use `true` for any".into(),
                ));
            }
            shape::check(&schema, spent).map_err(fault)?;
            value::answer_json(&schema)
        }
        AnswerRule::Regex(pattern) => {
            expression::check(pattern).map_err(|fault| {
                let quoted = expression::quoted(pattern);
                Error::Invalid(format!("the regular expression {quoted} is not supported: {fault}"))
            })?;
            format!("@{ANSWER}")
        }
        AnswerRule::Lark(grammar) => {
            embedded(grammar, spent).map_err(|fault| {
                Error::Invalid(format!("the grammar cannot be honoured: {fault}"))
            })?;
            format!("@{ANSWER}")
        }
        AnswerRule::Choice(texts) => choice(texts, out)?,
    };
    writeln!(out, "body: {body}").expect(STRING);
    Ok(())
}

/// Checks the schemas within a grammar of a client's own, which cost what others do.
fn embedded(grammar: &str, spent: &mut Spent) -> Result<(), String> {
    const KEYWORD: &str = "%json";
    let mut rest = grammar;
    while let Some(at) = rest.find(KEYWORD) {
        rest = &rest[at + KEYWORD.len()..];
        let (schema, end) = first(rest)
            .map_err(|fault| format!("behind `{KEYWORD}` there is no JSON schema: {fault}"))?;
        shape::check(&schema, spent)?;
        rest = &rest[end..];
    }
    Ok(())
}

/// One of some texts, as an expression: as alternatives of a rule each would be followed alone.
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
    let said: Vec<String> =
        texts.iter().filter(|text| !text.is_empty()).map(|text| literal(text)).collect();
    if said.is_empty() {
        return Ok("\"\"".to_owned());
    }
    writeln!(out, "CHOICE: {}", said.join(" | ")).expect(STRING);
    Ok(if said.len() < texts.len() { "CHOICE?" } else { "CHOICE" }.to_owned())
}

/// A call of a tool with its parameters in the order of the schema, the optional ones or not.
fn block(
    i: usize,
    tool: &Tool,
    values: &mut Values,
    spent: &mut Spent,
    out: &mut String,
) -> Result<()> {
    let fault = |fault: String| Error::Invalid(format!("tool `{}`: {fault}", tool.name));
    let root = Json::parse(&tool.parameters)
        .map_err(|e| fault(format!("parameters are not a JSON schema: {e}")))?;
    shape::check(&root, spent).map_err(fault)?;
    let object = arguments(&root, tool.strict).map_err(fault)?;
    let frame = Frame::new(&root, tool.strict);
    let list = |key| object.member(key).and_then(Json::as_array).unwrap_or_default();
    let required: HashSet<&str> = list("required").iter().filter_map(Json::as_str).collect();
    let properties = object.member("properties").and_then(Json::as_object).unwrap_or_default();
    let declared: HashSet<&str> = properties.iter().map(|(key, _)| key.as_str()).collect();
    let mut demanded = list("required").iter().filter_map(Json::as_str);
    if let Some(missing) = demanded.find(|key| !declared.contains(key)) {
        return Err(fault(format!(
            "`required` names `{missing}`, which `properties` does not declare"
        )));
    }
    let open = format!("<atem:function_calls>\n<atem:invoke name=\"{}\">\n", tool.name);
    write!(out, "block_{i}: {}", literal(&open)).expect(STRING);
    for (key, schema) in properties {
        if key.is_empty() || key.contains(['"', '<', '\n']) {
            return Err(fault(format!(
                "parameter {key:?} cannot be written in a call; use names without quotes, < and \
                 line breaks"
            )));
        }
        let value = values
            .rule(schema, &frame)
            .map_err(|why| fault(format!("parameter `{key}`: {why}")))?;
        let open = literal(&format!("<atem:parameter name=\"{key}\">"));
        let optional = if required.contains(key.as_str()) { "" } else { "?" };
        write!(out, " ( {open} {value} ){optional}").expect(STRING);
    }
    writeln!(out, " {}", literal("</atem:invoke>\n</atem:function_calls>")).expect(STRING);
    Ok(())
}

/// Where a schema of arguments declares them: itself, or what it refers to. `strict` when what
/// parameters one by one cannot keep is refused.
fn arguments(root: &Json, strict: bool) -> Result<&Json, String> {
    const WHOLE: [&str; 7] =
        ["anyOf", "oneOf", "allOf", "const", "enum", "minProperties", "maxProperties"];
    let mut schema = root;
    for _ in 0..value::MAX_DEPTH {
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
    Err(format!("`$ref` leads on for more than {} steps", value::MAX_DEPTH))
}

/// A text as the grammar quotes it.
pub(super) fn literal(text: &str) -> String {
    Json::String(text.to_owned()).to_compact()
}
