//! A chat completion request to the service's job. `muse-atem` reads and checks its fields.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use muse_atem::request::{ChatRequest, MAX_VALUES};
use muse_core::contract::Token;
use tracing::info;

use super::error::ApiError;
use crate::service::{ChatConstraints, ChatJob, GenerationSettings, RequestScope, ServiceError};

/// Copies of a text: as parsed, in the conversation, and in the rendered prompt.
const TEXT_COPIES: usize = 3;
/// Names of ignored fields that are logged.
const MAX_LOGGED_NAMES: usize = 256;
/// Bytes of a parsed value beside its text.
const VALUE_BYTES: usize = 128;

/// A request and how to answer it.
pub(super) struct CompletionRequest {
    pub(super) job: ChatJob,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    /// Whether the answer's call is its `function_call`.
    pub(super) legacy_functions: bool,
    /// The field that constrains the answer, for messages about it.
    pub(super) answer_path: Option<String>,
}

/// Reads the body of a request, for which it reserves memory first.
pub(super) fn parse(body: &[u8], scope: &RequestScope) -> Result<CompletionRequest, ApiError> {
    let size = TEXT_COPIES * body.len() + VALUE_BYTES * count_values(body).min(MAX_VALUES);
    scope.memory.grow(size).map_err(ServiceError::from)?;
    let request = ChatRequest::parse(body)
        .map_err(|error| ApiError::invalid_value(&error.path, &error.message))?;
    log_ignored(&request.ignored);
    let job = ChatJob {
        model: request.model,
        conversation: request.conversation,
        settings: GenerationSettings {
            sampling: request.sampling,
            max_tokens: request.max_tokens,
            min_tokens: request.min_tokens.unwrap_or(0),
            logprobs: request.logprobs,
            ..GenerationSettings::default()
        },
        stop: request.stop,
        stop_ids: request.stop_token_ids.into_iter().map(Token).collect(),
        ignore_model_stop: request.ignore_eos,
        choices: Some(request.n),
        growing_tool_calls: request.growing_tool_calls,
        constraints: ChatConstraints {
            tool_choice: request.tool_choice,
            answer: request.answer,
            thinking_budget: request.thinking_token_budget,
        },
        scope: None,
    };
    Ok(CompletionRequest {
        job,
        stream: request.stream,
        include_usage: request.include_usage,
        legacy_functions: request.legacy_functions,
        answer_path: request.answer_path,
    })
}

/// Logs fields that are ignored, each name once.
fn log_ignored(names: &[String]) {
    static LOGGED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if names.is_empty() {
        return;
    }
    let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    for name in names {
        if logged.len() < MAX_LOGGED_NAMES && logged.insert(name.clone()) {
            info!(field = name, "a field of chat completions is ignored");
        }
    }
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
