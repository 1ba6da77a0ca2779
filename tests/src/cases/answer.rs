//! Cases of what a model generated.

use std::collections::HashSet;
use std::sync::Arc;

use muse_atem::{TextOutputParser, TokenOutputParser, Tokenizer, json::Json, request};
use muse_core::contract::{
    Conversation, OutputParser, ParsedEvent, PromptPart, Token, Tokenizer as _,
};
use serde_json::Value;

use super::{Case, Outcome, difference};

/// The first special token of the vocabulary that the cases were written for.
const FIRST_SPECIAL: u64 = 200_000;

/// The events of an answer, joined.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// All reasoning.
    pub reasoning: String,
    /// All visible text.
    pub content: String,
    /// Name and arguments of each call.
    pub calls: Vec<(String, String)>,
}

/// A part of what the model generated.
#[derive(Clone, Debug)]
pub enum Input {
    /// Text; special tokens in it are spelled.
    Text(String),
    /// Bytes of text.
    Bytes(Vec<u8>),
    /// A token.
    Token(Token),
}

pub(super) fn run(case: &Case, tokenizer: &Arc<Tokenizer>) -> Outcome {
    let run = || -> Result<(), String> {
        let conversation = conversation(case)?;
        let inputs = inputs(&case.given, tokenizer)?;
        let complete = case.given["engine_finish"] == "stop";
        let events = parse_all(&conversation, &inputs, complete, tokenizer);
        check(case, &events)
    };
    match run() {
        Ok(()) => Outcome::Passed,
        Err(difference) => Outcome::Failed(difference),
    }
}

/// Parses a text case in parts.
///
/// # Errors
/// The case cannot be read.
pub fn parse(case: &Case, parts: &[&[u8]]) -> Result<Answer, String> {
    let mut parser = TextOutputParser::new(&conversation(case)?, &[]);
    let mut out = Vec::new();
    for part in parts {
        parser.push_bytes(part, &mut out);
    }
    parser.finish(case.given["engine_finish"] == "stop", &mut out);
    Ok(answer(&out))
}

/// Parses a case as tokens.
///
/// # Errors
/// The case cannot be read.
pub fn parse_tokens(
    case: &Case,
    tokens: &[Token],
    tokenizer: &Arc<Tokenizer>,
) -> Result<Answer, String> {
    let inputs: Vec<Input> = tokens.iter().copied().map(Input::Token).collect();
    let complete = case.given["engine_finish"] == "stop";
    Ok(answer(&parse_all(&conversation(case)?, &inputs, complete, tokenizer).concat()))
}

/// The conversation of the answer: its tools and the committed header.
fn conversation(case: &Case) -> Result<Conversation, String> {
    let mut body = serde_json::json!({"messages": [{"role": "user", "content": "?"}]});
    body["tools"] = case.tools.clone();
    let request = request::ChatRequest::parse(body.to_string().as_bytes());
    let mut conversation = request.map_err(|e| e.to_string())?.conversation;
    if let Some(tail) = case.given["prompt_tail"].as_str() {
        let header = tail
            .strip_prefix("<|start|>assistant")
            .and_then(|rest| rest.strip_suffix("<|message|>"))
            .ok_or_else(|| format!("prompt_tail {tail:?} is unknown to this runner"))?;
        conversation.answer_prefix =
            vec![PromptPart::Text(header.to_owned()), PromptPart::Special("<|message|>")];
    }
    Ok(conversation)
}

/// What the model generated, part by part.
///
/// # Errors
/// The case cannot be read.
pub fn inputs(given: &Value, tokenizer: &Tokenizer) -> Result<Vec<Input>, String> {
    let list = |key: &str| given[key].as_array().ok_or(format!("given.{key} is no list"));
    let text = |value: &Value| value.as_str().map(str::to_owned).ok_or("no text".to_owned());
    match given["type"].as_str() {
        Some("text") => Ok(vec![Input::Text(text(&given["text"])?)]),
        Some("chunks") => {
            list("chunks")?.iter().map(|chunk| Ok(Input::Text(text(chunk)?))).collect()
        }
        Some("bytes") => list("byte_chunks_hex")?.iter().map(hex).collect(),
        _ => {
            let mut inputs = Vec::new();
            for part in list("pieces")? {
                match part["id"].as_u64() {
                    Some(id) => inputs.push(Input::Token(special(id, tokenizer)?)),
                    None => {
                        let mut tokens = Vec::new();
                        tokenizer.encode(&text(&part["text"])?, &mut tokens);
                        inputs.extend(tokens.into_iter().map(Input::Token));
                    }
                }
            }
            Ok(inputs)
        }
    }
}

fn hex(value: &Value) -> Result<Input, String> {
    let text = value.as_str().ok_or("no text")?;
    let byte = |i: usize| u8::from_str_radix(&text[i..i + 2], 16).map_err(|e| e.to_string());
    Ok(Input::Bytes((0..text.len()).step_by(2).map(byte).collect::<Result<_, _>>()?))
}

/// Special token `id` of the cases, in the vocabulary at hand: they have the same order.
fn special(id: u64, tokenizer: &Tokenizer) -> Result<Token, String> {
    let first = tokenizer.special_token("<|begin_of_text|>").ok_or("no begin-of-text token")?;
    let slice = id.checked_sub(FIRST_SPECIAL).ok_or(format!("id {id} is not special"))?;
    Ok(Token(first.0 + u32::try_from(slice).map_err(|e| e.to_string())?))
}

/// The events after each input, and at the end.
fn parse_all(
    conversation: &Conversation,
    inputs: &[Input],
    complete: bool,
    tokenizer: &Arc<Tokenizer>,
) -> Vec<Vec<ParsedEvent>> {
    let mut text = TextOutputParser::new(conversation, &[]);
    let mut token = TokenOutputParser::new(conversation, &[], Arc::clone(tokenizer) as Arc<_>);
    let mut steps = Vec::new();
    for input in inputs {
        let mut out = Vec::new();
        match input {
            Input::Text(part) => text.push(part, &mut out),
            Input::Bytes(part) => text.push_bytes(part, &mut out),
            Input::Token(part) => token.push(*part, &mut out),
        }
        steps.push(out);
    }
    let mut out = Vec::new();
    match inputs.first() {
        Some(Input::Token(_)) => token.finish(complete, &mut out),
        _ => text.finish(complete, &mut out),
    }
    steps.push(out);
    steps
}

fn answer(events: &[ParsedEvent]) -> Answer {
    let mut answer = Answer::default();
    for event in events {
        match event {
            ParsedEvent::Reasoning(text) => answer.reasoning.push_str(text),
            ParsedEvent::Content(text) => answer.content.push_str(text),
            ParsedEvent::ToolCall(call) => {
                answer.calls.push((call.name.clone(), call.arguments.clone()))
            }
            ParsedEvent::ToolCallDelta(_) | ParsedEvent::StopText(_) => {}
        }
    }
    answer
}

fn check(case: &Case, steps: &[Vec<ParsedEvent>]) -> Result<(), String> {
    let expect = &case.expect;
    let events: Vec<ParsedEvent> = steps.concat();
    let answer = answer(&events);
    let same = |what: &str, found: &Value, expected: &Value| {
        if found == expected { Ok(()) } else { Err(difference(what, found, expected)) }
    };
    let reasoning = match answer.reasoning.as_str() {
        "" => Value::Null,
        text => Value::from(text),
    };
    same("reasoning", &reasoning, &expect["reasoning"])?;
    let content = match answer.content.as_str() {
        "" if !answer.calls.is_empty() => Value::Null,
        text => Value::from(text),
    };
    same("content", &content, &expect["content"])?;
    check_calls(&answer, expect)?;
    let finish = match case.given["engine_finish"].as_str() {
        Some("length") => "length",
        _ if !answer.calls.is_empty() => "tool_calls",
        _ => "stop",
    };
    if expect["also_accept"]["finish_reason"] != finish {
        same("finish_reason", &Value::from(finish), &expect["finish_reason"])?;
    }
    match expect["stream"].as_object() {
        Some(conditions) => {
            conditions.iter().try_for_each(|(key, value)| check_stream(key, value, steps))
        }
        None => Ok(()),
    }
}

fn check_calls(answer: &Answer, expect: &Value) -> Result<(), String> {
    let calls: Vec<Value> = answer
        .calls
        .iter()
        .map(|(name, arguments)| {
            let arguments: Value = serde_json::from_str(arguments).map_err(|e| e.to_string())?;
            Ok(serde_json::json!({"name": name, "arguments": arguments}))
        })
        .collect::<Result<_, String>>()?;
    if Some(&calls) != expect["tool_calls"].as_array() {
        return Err(difference("tool_calls", &calls, &expect["tool_calls"]));
    }
    if let Some(texts) = expect["arguments_text"].as_array() {
        let found: Vec<_> = answer.calls.iter().map(|(_, text)| Value::from(&**text)).collect();
        if found != *texts {
            return Err(difference("arguments_text", &found, texts));
        }
    }
    // Numbers are compared as spelled, since a JSON library may round them.
    for (_, arguments) in &answer.calls {
        let again = Json::parse(arguments).map_err(|e| e.to_string())?.to_compact();
        if again != *arguments {
            return Err(difference("arguments are not compact JSON", arguments, &again));
        }
    }
    Ok(())
}

fn check_stream(key: &str, value: &Value, steps: &[Vec<ParsedEvent>]) -> Result<(), String> {
    let say = |out: &[ParsedEvent]| answer(out).content;
    let calls = || {
        steps.iter().flatten().filter_map(|event| match event {
            ParsedEvent::ToolCall(call) => Some(call),
            _ => None,
        })
    };
    let holds = match key {
        "no_delta_contains" => steps.iter().flatten().all(|event| match event {
            ParsedEvent::Reasoning(text) | ParsedEvent::Content(text) => value
                .as_array()
                .is_some_and(|all| all.iter().all(|no| !text.contains(no.as_str().unwrap_or("")))),
            _ => true,
        }),
        "first_chunk_content_nonempty" => !say(&steps[0]).is_empty(),
        "flush_at_end" => steps.last().is_some_and(|out| value.as_str() == Some(&*say(out))),
        "indices" => value.as_array().is_some_and(|all| all.len() == calls().count()),
        "distinct_ids" => {
            calls().map(|call| &call.id).collect::<HashSet<_>>().len() == calls().count()
        }
        // Applies to growing arguments only, which have their own tests.
        "if_incremental" => true,
        other => return Err(format!("expect.stream.{other} is unknown to this runner")),
    };
    if holds { Ok(()) } else { Err(difference(&format!("stream.{key}"), &steps, value)) }
}
