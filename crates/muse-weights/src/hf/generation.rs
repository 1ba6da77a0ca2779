//! How a HuggingFace folder says to sample and where to stop.

use muse_core::contract::GenerationDefaults;
use serde::Deserialize;

use super::{HfFolder, Object};
use crate::error::Result;
use crate::settings::{Settings, most};

/// Defaults from generation_config.json; stop ids fall back to config.json, whose text section is
/// given apart.
pub(super) fn defaults(
    folder: &HfFolder,
    section: &Object,
    vocab: usize,
) -> Result<GenerationDefaults> {
    let mut out = GenerationDefaults::default();
    let file = folder.generation.as_ref();
    if let Some(file) = file {
        out.temperature = match file.flag("do_sample")? {
            Some(false) => Some(0.0),
            _ => file.maybe_between("temperature", 0.0, 1e6)?,
        };
        out.top_k = file.integer("top_k")?.map(|k| k.min(most::VOCAB as u64) as u32);
        out.top_p = file.maybe_positive("top_p", 1.0)?;
        out.min_p = file.maybe_between("min_p", 0.0, 1.0)?;
        out.repetition_penalty = file.maybe_positive("repetition_penalty", 1e6)?;
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
    // It parts the messages of a turn, so a file that names it an end is overruled.
    let eom = folder.tokenizer.as_ref().and_then(|file| end_of_message(&file.bytes));
    out.stop.retain(|&id| Some(id) != eom);
    Ok(out)
}

/// The tokens that tokenizer.json adds to its vocabulary.
#[derive(Deserialize)]
struct Tokenizer {
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
}

/// The id of `<|eom|>`. A file that cannot be read is its own reader's to refuse.
fn end_of_message(tokenizer: &[u8]) -> Option<u32> {
    let tokenizer: Tokenizer = serde_json::from_slice(tokenizer).ok()?;
    let mut added = tokenizer.added_tokens.iter();
    added.find(|token| token.content == "<|eom|>").map(|token| token.id)
}
