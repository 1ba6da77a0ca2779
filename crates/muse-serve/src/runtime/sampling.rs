//! Sampling defaults and stop tokens of a model: the checkpoint's own, and those of the published
//! model where it has none.

use muse_core::contract::{Sampling, Token, Tokenizer, WeightSource};

/// Used where a request leaves a field out.
pub(super) fn defaults(source: &dyn WeightSource) -> Sampling {
    let checkpoint = source.generation();
    Sampling {
        temperature: checkpoint.temperature.unwrap_or(1.0),
        top_k: checkpoint.top_k.unwrap_or(64),
        top_p: checkpoint.top_p.unwrap_or(0.95),
        min_p: checkpoint.min_p.unwrap_or(0.0),
        repetition_penalty: checkpoint.repetition_penalty.unwrap_or(1.0),
        ..Sampling::default()
    }
}

/// Tokens that end an answer.
pub(super) fn stop_tokens(
    source: &dyn WeightSource,
    tokenizer: Option<&dyn Tokenizer>,
) -> Vec<Token> {
    let mut stop: Vec<Token> = source.generation().stop.iter().copied().map(Token).collect();
    if stop.is_empty()
        && let Some(tokenizer) = tokenizer
    {
        let ends = ["<|end_of_text|>", "<|eot|>"];
        stop.extend(ends.iter().filter_map(|text| tokenizer.special_token(text)));
    }
    stop
}
