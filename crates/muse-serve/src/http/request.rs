//! Reads a chat completion request: `muse-atem` knows its fields, this is what the service makes
//! of them.

use muse_atem::AnswerRule;
use muse_atem::request::{ChatRequest, SamplingFields};
use muse_core::contract::Token;

use super::error::ApiError;
use crate::service::{Ask, Rules, Settings};

/// What a body asks for.
pub(super) struct Wanted {
    pub(super) ask: Ask,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
}

pub(super) fn read(body: &[u8]) -> Result<Wanted, ApiError> {
    let request =
        ChatRequest::parse(body).map_err(|error| ApiError::wrong(&error.path, &error.message))?;
    let settings = settings(&request.sampling);
    let ask = Ask {
        model: request.model,
        conversation: request.conversation,
        settings: Settings {
            max_tokens: request.max_tokens,
            logprobs: request.logprobs,
            ..settings
        },
        stop: request.stop,
        stop_ids: request.stop_token_ids.into_iter().map(Token).collect(),
        choices: Some(request.n),
        rules: Rules {
            tools: request.tool_choice,
            answer: AnswerRule::from(&request.response_format),
            thinking: request.thinking_token_budget,
        },
    };
    Ok(Wanted { ask, stream: request.stream, include_usage: request.include_usage })
}

fn settings(fields: &SamplingFields) -> Settings {
    Settings {
        temperature: fields.temperature,
        top_k: fields.top_k,
        top_p: fields.top_p,
        min_p: fields.min_p,
        repetition_penalty: fields.repetition_penalty,
        frequency_penalty: fields.frequency_penalty,
        presence_penalty: fields.presence_penalty,
        bias: fields.logit_bias.clone(),
        seed: fields.seed,
        ..Settings::default()
    }
}
