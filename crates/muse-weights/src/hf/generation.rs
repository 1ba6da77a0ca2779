//! How a HuggingFace folder says to sample and where to stop.

use muse_core::contract::GenerationDefaults;

use super::Object;
use crate::error::Result;
use crate::settings::{Settings, most};

/// Defaults from generation_config.json; stop ids fall back to config.json.
pub(super) fn defaults(
    file: Option<&Object>,
    config: &Object,
    section: &Object,
    vocab: usize,
) -> Result<GenerationDefaults> {
    let mut out = GenerationDefaults::default();
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
    for object in file.into_iter().chain([config, section]) {
        if let Some(stop) = object.tokens("eos_token_id")? {
            if let Some(id) = stop.iter().find(|&&id| id as usize >= vocab) {
                let expected = format!("token ids below the vocabulary's size, {vocab}");
                return Err(object.wrong("eos_token_id", id, expected));
            }
            out.stop = stop;
            break;
        }
    }
    Ok(out)
}
