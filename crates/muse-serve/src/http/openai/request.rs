//! A chat completion request to the service's job. `muse-atem` reads and checks its fields.

use muse_atem::request::{ChatRequest, MAX_VALUES};
use muse_core::contract::Token;

use super::error::ApiError;
use crate::service::{ChatConstraints, ChatJob, GenerationSettings, RequestScope, ServiceError};

/// Copies of a text: as parsed, in the conversation, and in the rendered prompt.
const TEXT_COPIES: usize = 3;
/// Bytes of a parsed value beside its text.
const VALUE_BYTES: usize = 128;

/// A request and how to answer it.
pub(super) struct CompletionRequest {
    pub(super) job: ChatJob,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
}

/// Reads the body of a request, for which it reserves memory first.
pub(super) fn parse(body: &[u8], scope: &RequestScope) -> Result<CompletionRequest, ApiError> {
    let size = TEXT_COPIES * body.len() + VALUE_BYTES * count_values(body).min(MAX_VALUES);
    scope.memory.grow(size).map_err(ServiceError::from)?;
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
        growing_tool_calls: request.growing_tool_calls,
        constraints: ChatConstraints {
            tool_choice: request.tool_choice,
            answer: request.answer,
            thinking_budget: request.thinking_token_budget,
        },
        scope: None,
    };
    Ok(CompletionRequest { job, stream: request.stream, include_usage: request.include_usage })
}

/// At most the number of values in a JSON text, which need not be valid.
fn count_values(body: &[u8]) -> usize {
    let (mut values, mut in_string, mut escaped) = (1, false, false);
    for &byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => values += 1,
            _ => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_strings() {
        for (text, least) in [
            ("7", 1),
            ("[1, 2, 3]", 4),
            (r#"{"a": [{}, "x,[{\"], "b\"": {"c": 1}}"#, 6),
            ("", 0),
            (r#"["\\", 1]"#, 3),
        ] {
            let counted = count_values(text.as_bytes());
            assert!((least..=least + 2).contains(&counted), "{text}: {counted}");
        }
    }
}
