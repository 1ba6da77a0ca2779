//! Reads an OpenAI chat request into a conversation and settings. A field is honoured, or refused
//! by name when it would change the answer, or ignored and its name reported; see `dialect.rs`. A
//! field with a wrong type or value is an error with its path.

mod answer;
mod call_ids;
mod continuation;
mod dialect;
mod error;
mod fields;
mod history;
mod messages;
mod reasoning;
mod settings;
mod template_arguments;
mod tools;

use muse_core::contract::{Conversation, PromptPart};

use crate::answer_rule::AnswerRule;
use crate::json::{self, Json};
use crate::special_token::SpecialToken;
use dialect::Support;
use fields::Fields;

pub use call_ids::resolve_calls;
pub use continuation::continue_final_message;
pub use error::RequestError;
pub use messages::{Media, MediaKind};
pub use settings::SamplingFields;
pub use template_arguments::from_template_arguments;
pub use tools::{NO_PARAMETERS, ToolChoice, check_tool_name};

/// The most JSON values that the fields of a request may hold.
pub const MAX_VALUES: usize = 500_000;

/// The most ignored fields that are reported, and the most characters of a name.
const MAX_IGNORED: usize = 32;
const MAX_IGNORED_CHARACTERS: usize = 64;

/// A chat request.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    /// The requested model.
    pub model: Option<String>,
    /// Messages, tools and the variables of the template.
    pub conversation: Conversation,
    /// Pictures and videos of the conversation, in order.
    pub media: Vec<Media>,
    /// Which tools may or must be called.
    pub tool_choice: ToolChoice,
    /// Whether several calls may come in one answer.
    pub parallel_tool_calls: bool,
    /// Whether tools were declared as `functions`: the answer's call is then its `function_call`,
    /// without id and index, and its finish reason `function_call`.
    pub legacy_functions: bool,
    /// What the visible answer must be.
    pub answer: AnswerRule,
    /// The field that says so, like `response_format`, for messages about it.
    pub answer_path: Option<String>,
    /// Texts that end the visible answer.
    pub stop: Vec<String>,
    /// Tokens that end the answer, besides the model's own.
    pub stop_token_ids: Vec<u32>,
    /// The most tokens to generate, reasoning included.
    pub max_tokens: Option<u32>,
    /// The least tokens to generate: no stop token is sampled before.
    pub min_tokens: Option<u32>,
    /// Whether the model's own stop tokens do not end the answer.
    pub ignore_eos: bool,
    /// The most tokens of reasoning.
    pub thinking_token_budget: Option<u32>,
    /// Sampling settings, where the request has them.
    pub sampling: SamplingFields,
    /// How many alternatives to report per token; none when no log-probabilities are requested.
    pub logprobs: Option<u32>,
    /// How many answers; at least 1.
    pub n: u32,
    /// Whether the answer is streamed.
    pub stream: bool,
    /// Whether a stream ends with the usage.
    pub include_usage: bool,
    /// Whether a stream has the calls in deltas while they are generated.
    pub growing_tool_calls: Option<bool>,
    /// Fields that were ignored, the first few by name.
    pub ignored: Vec<String>,
}

impl ChatRequest {
    /// Reads the body of a request. Fields that are not read are checked to be JSON, but never
    /// built.
    ///
    /// # Errors
    /// The body is not a JSON object, holds too much, or a field is not supported or has a wrong
    /// type or value.
    pub fn parse(body: &[u8]) -> Result<Self, RequestError> {
        Self::read(body).map_err(RequestError::clipped)
    }

    fn read(body: &[u8]) -> Result<Self, RequestError> {
        let (body, mut ignored) = read_members(body)?;
        let fields = Fields::whole(&body)?;
        let arguments = fields.object("chat_template_kwargs")?.unwrap_or_default();
        ignored.extend(unread(&arguments, &dialect::TEMPLATE_ARGUMENTS));
        let stream_options = fields.object("stream_options")?.unwrap_or_default();
        ignored.extend(unread(&stream_options, &dialect::STREAM_OPTIONS));
        ignored.truncate(MAX_IGNORED);
        let (mut messages, media) = messages::read(&fields)?;
        resolve_calls(&mut messages)?;
        let tools::Tools { declared, choice: tool_choice, legacy } = tools::read(&fields)?;
        let reasoning = reasoning::read(&fields, &arguments)?;
        let start = continuation::read(&fields, &arguments, &tool_choice, &mut messages)?;
        if arguments.boolean("keep_text_beside_calls")?.unwrap_or(false) {
            messages = history::keep_text_beside_calls(messages);
        }
        if arguments.boolean("drop_earlier_reasoning")?.unwrap_or(false) {
            history::drop_earlier_reasoning(&mut messages);
        }
        let answer_prefix = match &tool_choice {
            _ if !start.prefix.is_empty() || start.omits_header => start.prefix,
            ToolChoice::Named(name) => header(name).to_vec(),
            _ if reasoning.is_off && declared.is_empty() => content_header().to_vec(),
            _ => Vec::new(),
        };
        let parallel_tool_calls = fields.boolean("parallel_tool_calls")?.unwrap_or(true);
        let growing_tool_calls = stream_options.boolean("growing_tool_calls")?;
        let conversation = Conversation {
            messages,
            tools: declared,
            namespaces: tools::namespaces(&fields, &arguments)?,
            reasoning_strength: reasoning.strength,
            knowledge_cutoff: settings::variable("knowledge_cutoff", &fields, &arguments)?,
            current_date: settings::variable("current_date", &fields, &arguments)?,
            single_call: !parallel_tool_calls || legacy,
            growing_calls: growing_tool_calls.unwrap_or(false),
            answer_prefix,
            omit_generation_prompt: start.omits_header,
        };
        let (answer, answer_path) = answer::read(&fields)?;
        let max_tokens = settings::max_tokens(&fields)?;
        Ok(Self {
            model: fields.text("model")?.map(str::to_owned),
            conversation,
            media,
            tool_choice,
            parallel_tool_calls,
            legacy_functions: legacy,
            answer,
            answer_path,
            stop: settings::stop(&fields)?,
            stop_token_ids: settings::stop_token_ids(&fields)?,
            max_tokens,
            min_tokens: settings::min_tokens(&fields, max_tokens)?,
            ignore_eos: fields.boolean("ignore_eos")?.unwrap_or(false),
            thinking_token_budget: reasoning.budget,
            sampling: settings::sampling(&fields)?,
            logprobs: settings::logprobs(&fields)?,
            n: fields.whole_number("n", 1, u32::MAX)?.unwrap_or(1),
            stream: fields.boolean("stream")?.unwrap_or(false),
            include_usage: stream_options.boolean("include_usage")?.unwrap_or(false),
            growing_tool_calls,
            ignored,
        })
    }
}

/// The fields of a body that are read, and the names of those that are ignored.
fn read_members(body: &[u8]) -> Result<(Json, Vec<String>), RequestError> {
    let whole = |message: String| RequestError { path: String::new(), message };
    let text = std::str::from_utf8(body)
        .map_err(|e| whole(format!("the body is not UTF-8 from byte {} on", e.valid_up_to())))?;
    let members =
        json::members(text).map_err(|e| whole(format!("the body is not a JSON object: {e}")))?;
    let (mut read, mut ignored, mut left) = (Vec::new(), Vec::new(), MAX_VALUES);
    for (key, value) in members {
        match dialect::support(&key) {
            Support::Honoured => {
                let Some((value, rest)) = json::bounded(value, left) else {
                    return Err(RequestError {
                        path: key,
                        message: format!("holds too much: a request has up to {MAX_VALUES} values"),
                    });
                };
                left = rest;
                read.push((key, value));
            }
            Support::Refused(neutral) => dialect::check_neutral(&key, value, neutral)?,
            Support::Ignored if value == "null" || ignored.len() == MAX_IGNORED => {}
            Support::Ignored => ignored.push(clipped_name(&key)),
        }
    }
    Ok((Json::Object(read), ignored))
}

/// The paths of members that are not among those read.
fn unread<'a>(
    object: &'a Fields<'a>,
    read: &'static [&'static str],
) -> impl Iterator<Item = String> + 'a {
    let unread = object.members().filter(|(key, value)| !read.contains(key) && !value.is_null());
    unread.map(|(key, _)| clipped_name(&object.path(key))).take(MAX_IGNORED)
}

fn clipped_name(name: &str) -> String {
    match name.char_indices().nth(MAX_IGNORED_CHARACTERS) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name.to_owned(),
    }
}

/// The header of the visible answer, behind `<|start|>assistant`: an answer that begins with it has no
/// reasoning.
pub fn content_header() -> [PromptPart; 2] {
    header("user")
}

/// The header of a message to `recipient`, behind `<|start|>assistant`.
fn header(recipient: &str) -> [PromptPart; 2] {
    let message = PromptPart::Special(SpecialToken::Message.text());
    [PromptPart::Text(format!(" to={recipient}")), message]
}
