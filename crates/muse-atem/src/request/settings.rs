//! Reads the settings of a request other than its conversation.

use std::ops::RangeInclusive;

use muse_core::contract::{Sampling, Token};

use super::error::RequestError;
use super::fields::{Fields, number, wrong};
use crate::json::Json;

const MAX_TOP_LOGPROBS: u32 = 20;

/// The numbers that sampling settings can have, on every protocol.
const RANGES: [(&str, RangeInclusive<f64>); 7] = [
    // OpenAI takes up to 2, others any; above 100 all tokens are about equally likely.
    ("temperature", 0.0..=100.0),
    // 0 keeps the most likely token alone.
    ("top_p", 0.0..=1.0),
    ("min_p", 0.0..=1.0),
    ("repetition_penalty", 0.01..=100.0),
    ("repeat_penalty", 0.01..=100.0),
    ("frequency_penalty", -2.0..=2.0),
    ("presence_penalty", -2.0..=2.0),
];

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
            // Samplers want a share above 0: the smallest one keeps one token, too.
            top_p: self.top_p.unwrap_or(defaults.top_p).max(f32::MIN_POSITIVE),
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

impl SamplingFields {
    /// Checks the ranges of numbers.
    ///
    /// # Errors
    /// The path is the name of the field.
    pub fn check(&self) -> Result<(), RequestError> {
        let given = [
            ("temperature", self.temperature),
            ("top_p", self.top_p),
            ("min_p", self.min_p),
            ("repetition_penalty", self.repetition_penalty),
            ("frequency_penalty", self.frequency_penalty),
            ("presence_penalty", self.presence_penalty),
        ];
        for (key, value) in given {
            let range = RANGES.iter().find(|(name, _)| *name == key);
            let (Some(value), Some((_, range))) = (value, range) else { continue };
            // 0.01 as a float of 32 bits is a little less.
            if !(*range.start() as f32..=*range.end() as f32).contains(&value) {
                let (low, high) = (range.start(), range.end());
                return Err(RequestError {
                    path: key.to_owned(),
                    message: format!("found {value}; give a number from {low} to {high}"),
                });
            }
        }
        Ok(())
    }
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

/// Texts that end the answer. Empty ones, which some clients send for none, are left out.
pub(super) fn stop(fields: &Fields<'_>) -> Result<Vec<String>, RequestError> {
    let mut stops = match fields.value("stop") {
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
    stops.retain(|text| !text.is_empty());
    Ok(stops)
}

pub(super) fn stop_token_ids(fields: &Fields<'_>) -> Result<Vec<u32>, RequestError> {
    let ids = fields.list("stop_token_ids")?.unwrap_or_default();
    let ids = ids.iter().enumerate().map(|(i, id)| {
        let value = id.as_number().and_then(|number| u32::try_from(number.to_whole()?).ok());
        let path = || fields.path(&format!("stop_token_ids[{i}]"));
        value.ok_or_else(|| wrong(path(), "a token id", id))
    });
    ids.collect()
}

/// `max_completion_tokens`, or its deprecated name `max_tokens`, or llama.cpp's `n_predict`; none
/// without a limit.
pub(super) fn max_tokens(fields: &Fields<'_>) -> Result<Option<u32>, RequestError> {
    let mut limit = None;
    for key in ["max_completion_tokens", "max_tokens", "n_predict"] {
        let next = fields.limit(key, 1)?;
        limit = limit.or(next);
    }
    Ok(limit)
}

/// The least tokens to generate.
pub(super) fn min_tokens(
    fields: &Fields<'_>,
    max_tokens: Option<u32>,
) -> Result<Option<u32>, RequestError> {
    let min = fields.whole_number("min_tokens", 0, u32::MAX)?;
    match (min, max_tokens) {
        (Some(min), Some(max)) if min > max => {
            fields.error("min_tokens", format!("is {min}, but at most {max} tokens may come"))
        }
        _ => Ok(min.filter(|min| *min > 0)),
    }
}

pub(super) fn sampling(fields: &Fields<'_>) -> Result<SamplingFields, RequestError> {
    let number = |key: &str| {
        let (_, range) = RANGES.iter().find(|(name, _)| *name == key).expect("a key of the table");
        fields.number(key, *range.start(), *range.end())
    };
    let repetition_penalty = number("repetition_penalty")?;
    Ok(SamplingFields {
        temperature: number("temperature")?,
        top_p: number("top_p")?,
        top_k: top_k(fields)?,
        min_p: number("min_p")?,
        repetition_penalty: repetition_penalty.or(number("repeat_penalty")?),
        frequency_penalty: number("frequency_penalty")?,
        presence_penalty: number("presence_penalty")?,
        logit_bias: logit_bias(fields)?,
        seed: fields.seed("seed")?,
    })
}

/// -1 keeps all tokens, as 0 does.
fn top_k(fields: &Fields<'_>) -> Result<Option<u32>, RequestError> {
    let given = fields.value("top_k").is_some();
    let top_k = fields.limit("top_k", 0)?;
    Ok(given.then(|| top_k.unwrap_or(0)))
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
