//! Reads the sampling defaults and the stop tokens of a HuggingFace folder.

use muse_core::contract::GenerationDefaults;
use serde::Deserialize;

use super::folder::HfFolder;
use super::object::Object;
use crate::error::Result;
use crate::settings::{Settings, max, special};

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
    add_special_tokens(&mut out.stop, folder, vocab);
    Ok(out)
}

/// Adds the tokens that end an answer, which files may leave out: without them an answer would run
/// on past its end. Removes `<|eom|>`, which separates the messages of one answer. A broken
/// tokenizer.json is no error here: the tokenizer refuses it.
fn add_special_tokens(stop: &mut Vec<u32>, folder: &HfFolder, vocab: usize) {
    let json = folder.tokenizer.as_ref().and_then(|file| file.text().ok());
    let tokenizer = json.and_then(|json| serde_json::from_slice(json).ok());
    let Some(Tokenizer { added_tokens }) = tokenizer else { return };
    for AddedToken { id, content } in added_tokens {
        match content.as_str() {
            special::END_OF_TEXT | special::END_OF_TURN
                if (id as usize) < vocab && !stop.contains(&id) =>
            {
                stop.push(id);
            }
            special::END_OF_MESSAGE => stop.retain(|&stop| stop != id),
            _ => {}
        }
    }
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
