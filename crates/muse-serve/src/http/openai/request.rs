//! A chat completion request to the service's job. `muse-atem` reads and checks its fields.

use muse_atem::request::ChatRequest;
use muse_core::contract::Token;

use super::error::ApiError;
use crate::service::{ChatConstraints, ChatJob, GenerationSettings};

/// A request and how to answer it.
pub(super) struct CompletionRequest {
    pub(super) job: ChatJob,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
}

/// Reads the body of a request.
pub(super) fn parse(body: &[u8]) -> Result<CompletionRequest, ApiError> {
    let request = ChatRequest::parse(body)
        .map_err(|error| ApiError::invalid_value(&error.path, &error.message))?;
    let job = ChatJob {
        model: request.model,
        conversation: request.conversation,
        settings: GenerationSettings {
            sampling: request.sampling,
            max_tokens: request.max_tokens,
            logprobs: request.logprobs,
            ..GenerationSettings::default()
        },
        stop: request.stop,
        stop_ids: request.stop_token_ids.into_iter().map(Token).collect(),
        choices: Some(request.n),
        constraints: ChatConstraints {
            tool_choice: request.tool_choice,
            answer: request.answer,
            thinking_budget: request.thinking_token_budget,
        },
    };
    Ok(CompletionRequest { job, stream: request.stream, include_usage: request.include_usage })
}
