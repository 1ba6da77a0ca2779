//! Reads an OpenAI chat request into a conversation and settings. Unknown fields are ignored; a
//! known field with a wrong type or value is an error with its path.

mod call_ids;
mod error;
mod fields;
mod history;
mod messages;
mod settings;
mod template_arguments;
mod tools;

use muse_core::contract::{Conversation, PromptPart};

use crate::json::Json;
use crate::special_token::SpecialToken;
use fields::Fields;

pub use call_ids::check_calls;
pub use error::RequestError;
pub use messages::{Media, MediaKind};
pub use settings::{ResponseFormat, SamplingFields};
pub use template_arguments::from_template_arguments;
pub use tools::{NO_PARAMETERS, ToolChoice, check_tool_name};

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
    /// What the visible answer must be.
    pub response_format: ResponseFormat,
    /// Texts that end the visible answer.
    pub stop: Vec<String>,
    /// Tokens that end the answer, besides the model's own.
    pub stop_token_ids: Vec<u32>,
    /// The most tokens to generate, reasoning included.
    pub max_tokens: Option<u32>,
    /// The most tokens of reasoning.
    pub thinking_token_budget: Option<u32>,
    /// Sampling settings, where the request has them.
    pub sampling: SamplingFields,
    /// How many alternatives to report per token; none when no log-probabilities are requested.
    pub logprobs: Option<u32>,
    /// How many answers.
    pub n: u32,
    /// Whether the answer is streamed.
    pub stream: bool,
    /// Whether a stream ends with the usage.
    pub include_usage: bool,
}

impl ChatRequest {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// The body is not a JSON object, or a known field has a wrong type or value.
    pub fn parse(body: &[u8]) -> Result<Self, RequestError> {
        let whole = |message: String| RequestError { path: String::new(), message };
        let text = std::str::from_utf8(body).map_err(|e| {
            whole(format!("the body is not UTF-8 from byte {} on", e.valid_up_to()))
        })?;
        let json = Json::parse(text).map_err(|e| whole(format!("the body is not JSON: {e}")))?;
        Self::from_json(&json)
    }

    /// Reads a body that is JSON already.
    ///
    /// # Errors
    /// As [`ChatRequest::parse`].
    pub fn from_json(body: &Json) -> Result<Self, RequestError> {
        Self::read(body).map_err(RequestError::clipped)
    }

    fn read(body: &Json) -> Result<Self, RequestError> {
        let fields = Fields::whole(body)?;
        let arguments = fields.object("chat_template_kwargs")?.unwrap_or_default();
        let (mut messages, media) = messages::read(&fields)?;
        check_calls(&messages)?;
        if arguments.boolean("keep_text_beside_calls")?.unwrap_or(false) {
            messages = history::keep_text_beside_calls(messages);
        }
        if arguments.boolean("drop_earlier_reasoning")?.unwrap_or(false) {
            history::drop_earlier_reasoning(&mut messages);
        }
        let (declared, tool_choice) = tools::read(&fields)?;
        let effort = settings::effort(&fields, &arguments)?;
        let parallel_tool_calls = fields.boolean("parallel_tool_calls")?.unwrap_or(true);
        let mut answer_prefix = Vec::new();
        match &tool_choice {
            ToolChoice::Named(name) => commit_header(name, &mut answer_prefix),
            _ if effort.skips_reasoning && declared.is_empty() => {
                commit_header("user", &mut answer_prefix)
            }
            _ => {}
        }
        let conversation = Conversation {
            messages,
            tools: declared,
            namespaces: tools::namespaces(&fields, &arguments)?,
            reasoning_strength: effort.strength,
            knowledge_cutoff: settings::variable("knowledge_cutoff", &fields, &arguments)?,
            current_date: settings::variable("current_date", &fields, &arguments)?,
            single_call: !parallel_tool_calls,
            growing_calls: settings::stream_option("growing_tool_calls", &fields)?,
            answer_prefix,
        };
        Ok(Self {
            model: fields.text("model")?.map(str::to_owned),
            conversation,
            media,
            tool_choice,
            parallel_tool_calls,
            response_format: settings::response_format(&fields)?,
            stop: settings::stop(&fields)?,
            stop_token_ids: settings::stop_token_ids(&fields)?,
            max_tokens: settings::max_tokens(&fields)?,
            thinking_token_budget: fields.whole_number("thinking_token_budget", 0, u32::MAX)?,
            sampling: settings::sampling(&fields)?,
            logprobs: settings::logprobs(&fields)?,
            n: fields.whole_number("n", 1, settings::MAX_CHOICES)?.unwrap_or(1),
            stream: fields.boolean("stream")?.unwrap_or(false),
            include_usage: settings::stream_option("include_usage", &fields)?,
        })
    }
}

/// Commits the header of the answer to `recipient`.
fn commit_header(recipient: &str, answer_prefix: &mut Vec<PromptPart>) {
    answer_prefix.push(PromptPart::Text(format!(" to={recipient}")));
    answer_prefix.push(PromptPart::Special(SpecialToken::Message.text()));
}
