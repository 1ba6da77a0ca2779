//! Reads the sampling defaults and the stop tokens of a HuggingFace folder.

use muse_core::contract::GenerationDefaults;
use serde::Deserialize;

use super::folder::HfFolder;
use super::object::Object;
use crate::error::Result;
use crate::settings::{Settings, max};

/// Defaults from generation_config.json. Without it, stop tokens are those of config.json or of its
/// `text_config`, `section`.
pub(super) fn defaults(
    folder: &HfFolder,
    section: &Object,
    vocab: usize,
) -> Result<GenerationDefaults> {
    let mut out = GenerationDefaults::default();
    let file = folder.generation.as_ref();
    if let Some(file) = file {
        out.temperature = match file.boolean("do_sample")? {
            Some(false) => Some(0.0),
            _ => file.optional_between("temperature", 0.0, 1e6)?,
        };
        out.top_k = file.integer("top_k")?.map(|k| k.min(max::VOCAB as u64) as u32);
        out.top_p = file.optional_positive("top_p", 1.0)?;
        out.min_p = file.optional_between("min_p", 0.0, 1.0)?;
        out.repetition_penalty = file.optional_positive("repetition_penalty", 1e6)?;
    }
    for object in file.into_iter().chain([&folder.config, section]) {
        if let Some(stop) = object.tokens("eos_token_id")? {
            if let Some(id) = stop.iter().find(|&&id| id as usize >= vocab) {
                let expected = format!("token ids below the vocabulary's size, {vocab}");
                return Err(object.wrong("eos_token_id", id, expected));
            }
            out.stop = stop;
            break;
        }
    }
    // `<|eom|>` separates the messages of one answer: never a stop token, whatever the files name.
    let eom = folder.tokenizer.as_ref().and_then(|file| end_of_message(&file.bytes));
    out.stop.retain(|&id| Some(id) != eom);
    Ok(out)
}

/// The special tokens of tokenizer.json.
#[derive(Deserialize)]
struct Tokenizer {
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
}

/// The id of `<|eom|>`. A broken tokenizer.json is no error here: the tokenizer refuses it.
fn end_of_message(tokenizer: &[u8]) -> Option<u32> {
    let tokenizer: Tokenizer = serde_json::from_slice(tokenizer).ok()?;
    let mut added = tokenizer.added_tokens.iter();
    added.find(|token| token.content == "<|eom|>").map(|token| token.id)
}
