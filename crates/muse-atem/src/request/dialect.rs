//! Which fields of OpenAI's chat completions are supported, with those that vLLM, SGLang,
//! llama.cpp and Ollama add to them. Everything else is ignored by name.

use super::error::RequestError;
use crate::json::Json;

/// How a field is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Support {
    /// Read and acted upon.
    Honoured,
    /// Refused unless its value changes nothing: `null`, or one of these JSON texts.
    Refused(&'static [&'static str]),
    /// Accepted without effect; the name is reported.
    Ignored,
}

/// Longer values are not those that change nothing.
const MAX_NEUTRAL_BYTES: usize = 256;

/// Fields of a request that are read.
const HONOURED: [&str; 55] = [
    "add_generation_prompt",
    "chat_template_kwargs",
    "continue_final_message",
    "current_date",
    "ebnf",
    "enable_thinking",
    "format",
    "frequency_penalty",
    "function_call",
    "functions",
    "grammar",
    "guided_choice",
    "guided_grammar",
    "guided_json",
    "guided_json_object",
    "guided_regex",
    "ignore_eos",
    "json_schema",
    "knowledge_cutoff",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "min_p",
    "min_tokens",
    "model",
    "n",
    "n_predict",
    "parallel_tool_calls",
    "presence_penalty",
    "reasoning",
    "reasoning_budget",
    "reasoning_effort",
    "reasoning_strength",
    "regex",
    "repeat_penalty",
    "repetition_penalty",
    "response_format",
    "seed",
    "stop",
    "stop_token_ids",
    "stream",
    "stream_options",
    "structured_outputs",
    "temperature",
    "thinking",
    "thinking_budget",
    "thinking_token_budget",
    "tool_choice",
    "tool_namespace_descriptions",
    "tools",
    "top_k",
    "top_logprobs",
    "top_p",
];

/// Fields that change the answer in ways that are not supported, with the values that do not.
const REFUSED: [(&str, &[&str]); 58] = [
    // Text or media that would be lost.
    ("audio", &[]),
    ("documents", &["[]"]),
    ("input", &[]),
    ("instructions", &["\"\""]),
    ("modalities", &["[\"text\"]"]),
    ("prompt", &["\"\""]),
    ("suffix", &["\"\""]),
    ("system", &["\"\""]),
    ("web_search_options", &[]),
    // Another way to render the prompt.
    ("add_special_tokens", &["false"]),
    ("chat_template", &[]),
    ("echo", &["false"]),
    ("media_io_kwargs", &["{}"]),
    ("mm_processor_kwargs", &["{}"]),
    ("truncate_prompt_tokens", &["-1"]),
    // Another way to sample.
    ("allowed_token_ids", &["[]"]),
    ("bad_words", &["[]"]),
    ("best_of", &["1"]),
    ("custom_logit_processor", &[]),
    ("custom_params", &["{}"]),
    ("dry_multiplier", &["0"]),
    ("dynatemp_range", &["0"]),
    ("early_stopping", &["false"]),
    ("length_penalty", &["1"]),
    ("logits_processors", &["[]"]),
    ("lora", &["[]"]),
    ("lora_path", &[]),
    ("min_keep", &["0"]),
    ("mirostat", &["0"]),
    ("no_repeat_ngram_size", &["0"]),
    ("options", &["{}"]),
    ("tfs_z", &["1"]),
    ("top_a", &["0"]),
    ("top_n_sigma", &["-1", "0"]),
    ("typical_p", &["1"]),
    ("use_beam_search", &["false"]),
    ("vllm_xargs", &["{}"]),
    ("xtc_probability", &["0"]),
    // Another limit or end.
    ("include_stop_str_in_output", &["false"]),
    ("max_new_tokens", &[]),
    ("max_output_tokens", &[]),
    ("no_stop_trim", &["false"]),
    ("stop_sequences", &["[]"]),
    // Another constraint.
    ("guided_whitespace_pattern", &[]),
    ("structural_tag", &[]),
    // Another shape of the answer.
    ("include_reasoning", &["true"]),
    ("kv_transfer_params", &[]),
    ("parse_tool_calls", &["true"]),
    ("prompt_logprobs", &[]),
    ("reasoning_format", &["\"auto\"", "\"deepseek\"", "\"parsed\""]),
    ("return_hidden_states", &["false"]),
    ("return_token_ids", &["false"]),
    ("return_tokens", &["false"]),
    ("return_tokens_as_token_ids", &["false"]),
    ("separate_reasoning", &["true"]),
    ("skip_special_tokens", &["true"]),
    ("spaces_between_special_tokens", &["true"]),
    ("stream_reasoning", &["true"]),
];

/// Members of `chat_template_kwargs` that are read.
pub(super) const TEMPLATE_ARGUMENTS: [&str; 13] = [
    "add_generation_prompt",
    "continue_final_message",
    "current_date",
    "drop_earlier_reasoning",
    "enable_thinking",
    "keep_text_beside_calls",
    "knowledge_cutoff",
    "reasoning",
    "reasoning_effort",
    "reasoning_strength",
    "thinking",
    "thinking_budget",
    "tool_namespace_descriptions",
];

/// Members of `stream_options` that are read, or are about padding that is never sent.
pub(super) const STREAM_OPTIONS: [&str; 3] =
    ["growing_tool_calls", "include_obfuscation", "include_usage"];

/// How a field of a request is treated.
pub(super) fn support(key: &str) -> Support {
    if HONOURED.contains(&key) {
        return Support::Honoured;
    }
    match REFUSED.iter().find(|(name, _)| *name == key) {
        Some((_, neutral)) => Support::Refused(neutral),
        None => Support::Ignored,
    }
}

/// Refuses the value of a field that is not supported, unless it is one of `neutral`.
pub(super) fn check_neutral(key: &str, value: &str, neutral: &[&str]) -> Result<(), RequestError> {
    let json = |text: &str| Json::parse(text).expect("checked JSON");
    if value.len() <= MAX_NEUTRAL_BYTES {
        let value = json(value);
        if value.is_null() || neutral.iter().any(|neutral| same(&json(neutral), &value)) {
            return Ok(());
        }
    }
    let instead = match neutral {
        [] => "leave it out".to_owned(),
        [first, ..] => format!("leave it out or send {first}"),
    };
    Err(RequestError {
        path: key.to_owned(),
        message: format!("is not supported by this server; {instead}"),
    })
}

/// Whether two values are equal, numbers by their value.
fn same(one: &Json, other: &Json) -> bool {
    match (one, other) {
        (Json::Number(one), Json::Number(other)) => one.to_f64() == other.to_f64(),
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_one_entry() {
        let mut names: Vec<&str> = HONOURED.to_vec();
        names.extend(REFUSED.iter().map(|(name, _)| *name));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for (name, neutral) in REFUSED {
            neutral.iter().for_each(|value| check_neutral(name, value, neutral).unwrap());
            check_neutral(name, "null", neutral).unwrap();
            let error = check_neutral(name, "\"other\"", neutral).unwrap_err();
            assert_eq!(error.path, name);
        }
    }
}
