//! Reads the settings of a request other than its conversation.

use muse_core::contract::{Sampling, Token};

use super::error::RequestError;
use super::fields::{Fields, number, wrong};
use crate::json::Json;

/// The most answers to one request.
pub(super) const MAX_CHOICES: u32 = 128;

const MAX_TOP_LOGPROBS: u32 = 20;
const MAX_STOPS: usize = 16;

/// Sampling settings, where the request has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingFields {
    /// 0 is greedy.
    pub temperature: Option<f32>,
    /// See [`Sampling::top_p`].
    pub top_p: Option<f32>,
    /// See [`Sampling::top_k`].
    pub top_k: Option<u32>,
    /// See [`Sampling::min_p`].
    pub min_p: Option<f32>,
    /// See [`Sampling::repetition_penalty`].
    pub repetition_penalty: Option<f32>,
    /// See [`Sampling::frequency_penalty`].
    pub frequency_penalty: Option<f32>,
    /// See [`Sampling::presence_penalty`].
    pub presence_penalty: Option<f32>,
    /// See [`Sampling::logit_bias`].
    pub logit_bias: Vec<(Token, f32)>,
    /// See [`Sampling::seed`].
    pub seed: Option<u64>,
}

impl SamplingFields {
    /// The settings, with `defaults` where the request has none.
    pub fn over(&self, defaults: &Sampling) -> Sampling {
        Sampling {
            temperature: self.temperature.unwrap_or(defaults.temperature),
            top_k: self.top_k.unwrap_or(defaults.top_k),
            top_p: self.top_p.unwrap_or(defaults.top_p),
            min_p: self.min_p.unwrap_or(defaults.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(defaults.repetition_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(defaults.frequency_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(defaults.presence_penalty),
            logit_bias: match self.logit_bias.is_empty() {
                true => defaults.logit_bias.clone(),
                false => self.logit_bias.clone(),
            },
            seed: self.seed.unwrap_or(defaults.seed),
        }
    }
}

/// What the visible answer must be.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ResponseFormat {
    /// Any text.
    #[default]
    Text,
    /// A JSON object.
    JsonObject,
    /// JSON that fits a schema.
    JsonSchema {
        /// The client's name for it.
        name: Option<String>,
        /// The schema, as JSON text.
        schema: String,
    },
}

/// A reasoning effort in the model's words.
pub(super) struct Effort {
    pub(super) strength: Option<String>,
    /// No reasoning at all is requested.
    pub(super) skips_reasoning: bool,
}

/// The template's own variable takes precedence over OpenAI's two fields.
pub(super) fn effort(fields: &Fields<'_>, arguments: &Fields<'_>) -> Result<Effort, RequestError> {
    let nested = fields.object("reasoning")?.unwrap_or_default();
    let mut effort = None;
    for (object, key) in
        [(arguments, "reasoning_strength"), (fields, "reasoning_effort"), (&nested, "effort")]
    {
        let Some(word) = object.text(key)? else { continue };
        let (strength, skips_reasoning) = match word {
            "low" | "medium" | "high" | "xhigh" => (word, false),
            "minimal" => ("low", false),
            "max" => ("xhigh", false),
            "none" | "off" => ("low", true),
            _ => {
                let message = format!(
                    "unknown reasoning effort `{word}`, expected none, off, minimal, low, medium, \
                     high, xhigh or max"
                );
                return object.error(key, message);
            }
        };
        effort.get_or_insert(Effort { strength: Some(strength.to_owned()), skips_reasoning });
    }
    Ok(effort.unwrap_or(Effort { strength: None, skips_reasoning: false }))
}

/// A text variable of the template, given in `chat_template_kwargs` or beside the messages. An
/// empty text counts as absent.
pub(super) fn variable(
    key: &str,
    fields: &Fields<'_>,
    arguments: &Fields<'_>,
) -> Result<Option<String>, RequestError> {
    let value = arguments.text(key)?.or(fields.text(key)?);
    Ok(value.filter(|text| !text.is_empty()).map(str::to_owned))
}

pub(super) fn response_format(fields: &Fields<'_>) -> Result<ResponseFormat, RequestError> {
    let Some(format) = fields.object("response_format")? else { return Ok(ResponseFormat::Text) };
    match format.required_text("type")? {
        "text" => Ok(ResponseFormat::Text),
        "json_object" => Ok(ResponseFormat::JsonObject),
        "json_schema" => {
            let Some(wrapper) = format.object("json_schema")? else {
                return format.error("json_schema", "is missing, expected an object");
            };
            let schema = match wrapper.value("schema") {
                Some(schema @ (Json::Object(_) | Json::Bool(_))) => schema.to_compact(),
                Some(other) => return Err(wrong(wrapper.path("schema"), "a JSON schema", other)),
                None => return wrapper.error("schema", "is missing, expected a JSON schema"),
            };
            wrapper.boolean("strict")?;
            wrapper.text("description")?;
            Ok(ResponseFormat::JsonSchema {
                name: wrapper.text("name")?.map(str::to_owned),
                schema,
            })
        }
        kind => {
            format.error("type", format!("is `{kind}`, expected text, json_object or json_schema"))
        }
    }
}

pub(super) fn stop(fields: &Fields<'_>) -> Result<Vec<String>, RequestError> {
    let stops = match fields.value("stop") {
        None => return Ok(Vec::new()),
        Some(Json::String(text)) => vec![text.clone()],
        Some(Json::Array(items)) => {
            let texts = items.iter().enumerate().map(|(i, item)| match item {
                Json::String(text) => Ok(text.clone()),
                other => Err(wrong(fields.path(&format!("stop[{i}]")), "a string", other)),
            });
            texts.collect::<Result<_, _>>()?
        }
        Some(other) => return Err(wrong(fields.path("stop"), "a string or a list", other)),
    };
    if stops.len() > MAX_STOPS {
        return fields.error("stop", format!("has {} texts, at most {MAX_STOPS}", stops.len()));
    }
    if stops.iter().any(String::is_empty) {
        return fields.error("stop", "holds an empty text, which would stop at once");
    }
    Ok(stops)
}

pub(super) fn stop_token_ids(fields: &Fields<'_>) -> Result<Vec<u32>, RequestError> {
    let ids = fields.list("stop_token_ids")?.unwrap_or_default();
    let ids = ids.iter().enumerate().map(|(i, id)| {
        let value = id.as_number().and_then(|number| u32::try_from(number.to_u64()?).ok());
        let path = || fields.path(&format!("stop_token_ids[{i}]"));
        value.ok_or_else(|| wrong(path(), "a token id", id))
    });
    ids.collect()
}

/// `max_completion_tokens`, or its deprecated name `max_tokens`.
pub(super) fn max_tokens(fields: &Fields<'_>) -> Result<Option<u32>, RequestError> {
    let old = fields.whole_number("max_tokens", 1, u32::MAX)?;
    Ok(fields.whole_number("max_completion_tokens", 1, u32::MAX)?.or(old))
}

pub(super) fn sampling(fields: &Fields<'_>) -> Result<SamplingFields, RequestError> {
    Ok(SamplingFields {
        temperature: fields.number("temperature", 0.0, 2.0)?,
        top_p: fields.number("top_p", 0.0, 1.0)?,
        top_k: top_k(fields)?,
        min_p: fields.number("min_p", 0.0, 1.0)?,
        repetition_penalty: fields.number("repetition_penalty", 0.01, 100.0)?,
        frequency_penalty: fields.number("frequency_penalty", -2.0, 2.0)?,
        presence_penalty: fields.number("presence_penalty", -2.0, 2.0)?,
        logit_bias: logit_bias(fields)?,
        seed: fields.seed("seed")?,
    })
}

/// Some clients send -1 for all tokens.
fn top_k(fields: &Fields<'_>) -> Result<Option<u32>, RequestError> {
    match fields.value("top_k") {
        Some(Json::Number(number)) if number.text() == "-1" => Ok(Some(0)),
        _ => fields.whole_number("top_k", 0, u32::MAX),
    }
}

fn logit_bias(fields: &Fields<'_>) -> Result<Vec<(Token, f32)>, RequestError> {
    let Some(mapping) = fields.object("logit_bias")? else { return Ok(Vec::new()) };
    let biases = mapping.members().map(|(key, value)| {
        let Ok(token) = key.parse() else {
            return fields.error("logit_bias", format!("key `{key}` is no token id"));
        };
        Ok((Token(token), number(value, || mapping.path(key), -100.0, 100.0)?))
    });
    biases.collect()
}

/// How many alternatives to report, when log-probabilities are requested.
pub(super) fn logprobs(fields: &Fields<'_>) -> Result<Option<u32>, RequestError> {
    let expected = fields.boolean("logprobs")?.unwrap_or(false);
    match fields.whole_number("top_logprobs", 0, MAX_TOP_LOGPROBS)? {
        Some(count) if count > 0 && !expected => {
            fields.error("top_logprobs", format!("is {count}, but logprobs is not true"))
        }
        count => Ok(expected.then(|| count.unwrap_or(0))),
    }
}

/// A boolean of `stream_options`.
pub(super) fn stream_option(key: &str, fields: &Fields<'_>) -> Result<bool, RequestError> {
    let options = fields.object("stream_options")?.unwrap_or_default();
    Ok(options.boolean(key)?.unwrap_or(false))
}
