//! Messages of `muse.v1` to the types of the service, and back.

use std::collections::HashSet;
use std::time::Duration;

use jiff::civil::Date;
use muse_atem::AnswerRule;
use muse_atem::request::{
    NO_PARAMETERS, SamplingFields, ToolChoice, check_tool_name, content_header,
    continue_final_message, resolve_calls,
};
use muse_core::contract::{
    Content, Conversation, Message, Part, PromptPart, Sampled, Sampling, Token, Tokenizer, Tool,
    ToolCall,
};
use muse_proto::v1::{self, FinishReason, ReasoningStrength, Role, ToolMode, finish::Matched};
use tonic::Status;

use crate::service::{
    AnswerToken, ChatFinish, ChatUsage, GenerationSettings, RequestScope, ServiceError,
};

/// The status of an error, its field spelled as a path in the request.
pub(super) fn status(error: ServiceError, scope: Option<&RequestScope>) -> Status {
    crate::status::to_grpc(&error, scope.map(RequestScope::id), |field| match field {
        "temperature" | "top_k" | "top_p" | "min_p" | "repetition_penalty"
        | "frequency_penalty" | "presence_penalty" | "bias" | "seed" => format!("sampling.{field}"),
        "max_tokens" | "min_tokens" | "max_draft" | "logprobs" => format!("limits.{field}"),
        "messages" => "conversation.messages".to_owned(),
        "tools" => "conversation.tools".to_owned(),
        "answer" => "constraint".to_owned(),
        "stop_token_ids" => "stop_ids".to_owned(),
        other => other.to_owned(),
    })
}

pub(super) fn settings(
    sampling: Option<v1::Sampling>,
    limits: Option<v1::Limits>,
    deadline: Option<Duration>,
) -> GenerationSettings {
    let (sampling, limits) = (sampling.unwrap_or_default(), limits.unwrap_or_default());
    GenerationSettings {
        sampling: SamplingFields {
            temperature: sampling.temperature,
            top_k: sampling.top_k,
            top_p: sampling.top_p,
            min_p: sampling.min_p,
            repetition_penalty: sampling.repetition_penalty,
            frequency_penalty: sampling.frequency_penalty,
            presence_penalty: sampling.presence_penalty,
            logit_bias: sampling.bias.into_iter().map(|b| (Token(b.id), b.bias)).collect(),
            seed: sampling.seed,
        },
        max_tokens: limits.max_tokens,
        min_tokens: limits.min_tokens,
        max_draft: limits.max_draft,
        logprobs: limits.logprobs,
        priority: limits.priority,
        deadline,
    }
}

/// The sampling used where a request sets nothing; the seed is left out.
pub(super) fn default_sampling(sampling: &Sampling) -> v1::Sampling {
    let bias = |&(token, bias): &(Token, f32)| v1::TokenBias { id: token.0, bias };
    v1::Sampling {
        temperature: Some(sampling.temperature),
        top_k: Some(sampling.top_k),
        top_p: Some(sampling.top_p),
        min_p: Some(sampling.min_p),
        repetition_penalty: Some(sampling.repetition_penalty),
        frequency_penalty: Some(sampling.frequency_penalty),
        presence_penalty: Some(sampling.presence_penalty),
        bias: sampling.logit_bias.iter().map(bias).collect(),
        seed: None,
    }
}

/// Reads a conversation and its tool choice. Errors name the field by its path.
pub(super) fn conversation(
    message: v1::Conversation,
) -> Result<(Conversation, ToolChoice), ServiceError> {
    let messages = message.messages.into_iter().enumerate().map(|(i, m)| read_message(i, m));
    let mut messages: Vec<_> = messages.collect::<Result<_, _>>()?;
    resolve_calls(&mut messages).map_err(|wrong| {
        ServiceError::invalid_field(&format!("conversation.{}", wrong.path), wrong.message)
    })?;
    let answer_prefix = match message.continue_final_message {
        true => continue_final_message(&mut messages).map_err(|wrong| {
            ServiceError::invalid_field(&format!("conversation.{}", wrong.path), wrong.message)
        })?,
        false => Vec::new(),
    };
    let mut conversation = Conversation {
        messages,
        tools: tools(message.tools)?,
        namespaces: message.namespaces.into_iter().map(|n| (n.name, n.description)).collect(),
        reasoning_strength: strength(message.reasoning_strength)?,
        knowledge_cutoff: date("knowledge_cutoff", message.knowledge_cutoff)?,
        current_date: date("current_date", message.current_date)?,
        single_call: message.single_call,
        answer_prefix,
        ..Conversation::default()
    };
    let choice = message.tool_choice.and_then(|choice| choice.choice);
    let choice = apply_tool_choice(choice, &mut conversation)?;
    if message.continue_final_message
        && let ToolChoice::Named(_) | ToolChoice::Required = choice
    {
        let message = "leaves no place for the call that tool_choice demands; send one of them";
        let field = "conversation.continue_final_message";
        return Err(ServiceError::invalid_field(field, message));
    }
    let no_reasoning = message.reasoning_strength == i32::from(ReasoningStrength::None);
    if no_reasoning && conversation.tools.is_empty() && conversation.answer_prefix.is_empty() {
        conversation.answer_prefix = content_header().to_vec();
    }
    Ok((conversation, choice))
}

fn read_message(index: usize, message: v1::Message) -> Result<Message, ServiceError> {
    let path = |field: &str| format!("conversation.messages[{index}].{field}");
    let role = Role::try_from(message.role).unwrap_or(Role::Unspecified);
    let only = |field: &str, filled: bool, owner: Role| {
        if !filled || role == owner {
            return Ok(());
        }
        let (found, owner) = (role.as_str_name(), owner.as_str_name());
        let message = format!("is set in a message of {found}; it belongs to {owner} only");
        Err(ServiceError::invalid_field(&path(field), message))
    };
    only("reasoning", !message.reasoning.is_empty(), Role::Assistant)?;
    only("tool_calls", !message.tool_calls.is_empty(), Role::Assistant)?;
    only("tool_call_id", !message.tool_call_id.is_empty(), Role::Tool)?;
    only("tool_name", !message.tool_name.is_empty(), Role::Tool)?;
    let content = content(&path("content"), message.content)?;
    let filled = |text: String| (!text.is_empty()).then_some(text);
    match role {
        Role::System => Ok(Message::System(content)),
        Role::User => Ok(Message::User(content)),
        Role::Assistant => Ok(Message::Assistant {
            reasoning: filled(message.reasoning),
            content,
            calls: message.tool_calls.into_iter().map(tool_call).collect(),
            recipient: None,
            end_turn: None,
        }),
        Role::Tool => Ok(Message::Tool {
            name: filled(message.tool_name),
            call_id: filled(message.tool_call_id),
            content,
        }),
        Role::Unspecified => {
            let found = message.role;
            let message = format!(
                "found unknown role {found}; give ROLE_SYSTEM (1), ROLE_USER (2), ROLE_ASSISTANT \
                 (3) or ROLE_TOOL (4)"
            );
            Err(ServiceError::invalid_field(&path("role"), message))
        }
    }
}

fn content(path: &str, parts: Vec<v1::Part>) -> Result<Content, ServiceError> {
    let part = |(i, part): (usize, v1::Part)| match part.part {
        Some(v1::part::Part::Text(text)) => Ok(Part::Text(text)),
        None => {
            let message = "found a part of unknown kind; this server reads text";
            Err(ServiceError::invalid_field(&format!("{path}[{i}]"), message))
        }
    };
    parts.into_iter().enumerate().map(part).collect()
}

fn tools(messages: Vec<v1::Tool>) -> Result<Vec<Tool>, ServiceError> {
    let mut tools: Vec<Tool> = Vec::with_capacity(messages.len());
    let mut names = HashSet::new();
    for (i, message) in messages.into_iter().enumerate() {
        let wrong = |message| {
            ServiceError::invalid_field(&format!("conversation.tools[{i}].name"), message)
        };
        check_tool_name(&message.name).map_err(wrong)?;
        if !names.insert(message.name.clone()) {
            return Err(wrong(format!("a second tool is named {:?}; rename one", message.name)));
        }
        let parameters = Some(message.parameters_json).filter(|json| !json.is_empty());
        tools.push(Tool {
            name: message.name,
            description: message.description,
            parameters: parameters.unwrap_or_else(|| NO_PARAMETERS.to_owned()),
            strict: message.strict,
        });
    }
    Ok(tools)
}

fn tool_call(call: v1::ToolCall) -> ToolCall {
    ToolCall { id: call.id, name: call.name, arguments: call.arguments_json }
}

fn strength(value: i32) -> Result<Option<String>, ServiceError> {
    let word = match ReasoningStrength::try_from(value) {
        Ok(ReasoningStrength::Unspecified) => return Ok(None),
        Ok(ReasoningStrength::Low | ReasoningStrength::None) => "low",
        Ok(ReasoningStrength::Medium) => "medium",
        Ok(ReasoningStrength::High) => "high",
        Ok(ReasoningStrength::Xhigh) => "xhigh",
        Err(_) => {
            let message = format!("found {value}; give a value of ReasoningStrength (0 to 5)");
            return Err(ServiceError::invalid_field("conversation.reasoning_strength", message));
        }
    };
    Ok(Some(word.to_owned()))
}

fn date(field: &str, text: String) -> Result<Option<String>, ServiceError> {
    if text.is_empty() {
        return Ok(None);
    }
    // The parser also takes other spellings, years of more digits, and dates with a time.
    if text.len() == 10 && text.parse::<Date>().is_ok_and(|date| date.to_string() == text) {
        return Ok(Some(text));
    }
    let message = format!("found {text:?}; give a day of the calendar as YYYY-MM-DD");
    Err(ServiceError::invalid_field(&format!("conversation.{field}"), message))
}

/// Removes the tools of a conversation that may call none, and commits the header of a call to a
/// named tool.
fn apply_tool_choice(
    choice: Option<v1::tool_choice::Choice>,
    conversation: &mut Conversation,
) -> Result<ToolChoice, ServiceError> {
    use v1::tool_choice::Choice;
    match choice {
        None => Ok(ToolChoice::Auto),
        Some(Choice::Mode(mode)) => {
            let wrong = |message| {
                Err(ServiceError::invalid_field("conversation.tool_choice.mode", message))
            };
            match ToolMode::try_from(mode) {
                Ok(ToolMode::Unspecified | ToolMode::Auto) => Ok(ToolChoice::Auto),
                Ok(ToolMode::None) => {
                    conversation.tools.clear();
                    Ok(ToolChoice::None)
                }
                Ok(ToolMode::Required) if conversation.tools.is_empty() => {
                    wrong("a call is required, but there are no `tools`; declare one".to_owned())
                }
                Ok(ToolMode::Required) => Ok(ToolChoice::Required),
                Err(_) => wrong(format!("found {mode}; give a value of ToolMode (0 to 3)")),
            }
        }
        Some(Choice::Name(name)) => {
            if !conversation.tools.iter().any(|tool| tool.name == name) {
                let message = format!("tool {name:?} is not among `tools`; declare it there");
                return Err(ServiceError::invalid_field("conversation.tool_choice.name", message));
            }
            conversation.answer_prefix =
                vec![PromptPart::Text(format!(" to={name}")), PromptPart::Special("<|message|>")];
            Ok(ToolChoice::Named(name))
        }
    }
}

/// What the visible answer must be.
pub(super) fn answer_rule(constraint: Option<v1::Constraint>) -> Result<AnswerRule, ServiceError> {
    use v1::constraint::Rule;
    let Some(constraint) = constraint else { return Ok(AnswerRule::Free) };
    match constraint.rule {
        Some(Rule::JsonSchema(schema)) => Ok(AnswerRule::JsonSchema(schema)),
        Some(Rule::Regex(regex)) => Ok(AnswerRule::Regex(regex)),
        Some(Rule::Lark(lark)) => Ok(AnswerRule::Lark(lark)),
        Some(Rule::Gbnf(gbnf)) => Ok(AnswerRule::Gbnf(gbnf)),
        Some(Rule::Choice(choice)) => Ok(AnswerRule::Choice(choice.texts)),
        None => {
            let message =
                "found no rule; give json_schema, regex, lark, gbnf or choice, or leave it out";
            Err(ServiceError::invalid_field("answer", message))
        }
    }
}

pub(super) fn ids(tokens: &[Token]) -> Vec<u32> {
    tokens.iter().map(|token| token.0).collect()
}

pub(super) fn progress(done: u32, total: u32) -> v1::Progress {
    v1::Progress { done, total }
}

/// A token, with its log-probability when `logprobs` were requested.
pub(super) fn token(
    sampled: Sampled,
    tokenizer: Option<&dyn Tokenizer>,
    logprobs: bool,
) -> v1::Token {
    let alternative = |(token, logprob): (Token, f32)| v1::Alternative {
        id: token.0,
        bytes: spelling(token, tokenizer),
        logprob,
    };
    v1::Token {
        id: sampled.token.0,
        bytes: spelling(sampled.token, tokenizer),
        logprob: logprobs.then_some(sampled.logprob),
        top: sampled.top.into_iter().map(alternative).collect(),
    }
}

/// A token of a visible answer, whose log-probabilities were requested.
pub(super) fn answer_token(answer: AnswerToken, tokenizer: Option<&dyn Tokenizer>) -> v1::Token {
    v1::Token { bytes: answer.bytes, ..token(answer.sampled, tokenizer, true) }
}

fn spelling(token: Token, tokenizer: Option<&dyn Tokenizer>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(tokenizer) = tokenizer {
        tokenizer.decode(token, &mut bytes);
    }
    bytes
}

pub(super) fn call_delta(part: ToolCall) -> v1::ToolCallDelta {
    v1::ToolCallDelta { id: part.id, name: part.name, arguments_json: part.arguments }
}

pub(super) fn call(call: ToolCall) -> v1::ToolCall {
    v1::ToolCall { id: call.id, name: call.name, arguments_json: call.arguments }
}

pub(super) fn usage(usage: ChatUsage) -> v1::Usage {
    let (timings, rates) = (&usage.timings, usage.rates());
    let timings = v1::Timings {
        queued_seconds: timings.queued.as_secs_f64(),
        prefill_seconds: timings.prefill.as_secs_f64(),
        decode_seconds: timings.decode.as_secs_f64(),
        tokens_per_second: rates.tokens_per_second,
        prefill_tokens_per_second: rates.prefill_tokens_per_second,
        ar_decode_tokens_per_second: rates.ar_decode_tokens_per_second,
        accepted_drafts_per_verify: rates.accepted_drafts_per_verify,
    };
    v1::Usage {
        prompt_tokens: usage.tokens.prompt,
        cached_tokens: usage.tokens.cached,
        completion_tokens: usage.tokens.completion,
        reasoning_tokens: usage.reasoning,
        drafted_tokens: usage.tokens.drafted(),
        accepted_drafts: usage.tokens.accepted_by_verify().collect(),
        timings: Some(timings),
    }
}

pub(super) fn finish(finish: ChatFinish) -> v1::Finish {
    let (reason, matched, incomplete) = match finish {
        ChatFinish::StopToken(token) => (FinishReason::Stop, Some(Matched::StopId(token.0)), None),
        ChatFinish::StopText(text) => (FinishReason::Stop, Some(Matched::StopText(text)), None),
        ChatFinish::Length { incomplete_call } => (FinishReason::Length, None, incomplete_call),
        ChatFinish::ToolCalls => (FinishReason::ToolCalls, None, None),
    };
    v1::Finish { reason: reason.into(), matched, incomplete_tool_call: incomplete.map(call) }
}
