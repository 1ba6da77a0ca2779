//! Prompt parts to the tokens or segments that an engine takes.

use muse_core::contract::{Patches, PromptPart, Segment, Token, Tokenizer};
use muse_core::{Error, Result};

use crate::special_token::special_token_id;

/// The tokens of a prompt without pictures.
///
/// # Errors
/// [`Error::Unsupported`] when it holds pictures or videos, [`Error::Corrupt`] when the vocabulary
/// lacks a special token.
pub fn encode(parts: &[PromptPart], tokenizer: &dyn Tokenizer) -> Result<Vec<Token>> {
    let mut tokens = Vec::new();
    for part in parts {
        match part {
            PromptPart::Text(text) => tokenizer.encode(text, &mut tokens),
            PromptPart::Special(spelling) => tokens.push(special_token_id(spelling, tokenizer)?),
            PromptPart::Image(_) | PromptPart::Video(_) => {
                return Err(Error::Unsupported(
                    "the conversation holds pictures or videos, but no vision model is loaded; \
                     load one or send text only"
                        .to_owned(),
                ));
            }
        }
    }
    Ok(tokens)
}

/// The segments of a prompt with pictures: `images[n]` is the `n`-th picture of the conversation
/// and stands between `<|image_start|>` and `<|image_end|>`.
///
/// # Errors
/// [`Error::Invalid`] when a picture is missing, [`Error::Unsupported`] for videos,
/// [`Error::Corrupt`] when the vocabulary lacks a special token.
pub fn encode_with_images(
    parts: &[PromptPart],
    images: &[Patches],
    tokenizer: &dyn Tokenizer,
) -> Result<Vec<Segment>> {
    let mut segments = Vec::new();
    let mut tokens = Vec::new();
    for part in parts {
        match part {
            PromptPart::Text(text) => tokenizer.encode(text, &mut tokens),
            PromptPart::Special(spelling) => tokens.push(special_token_id(spelling, tokenizer)?),
            PromptPart::Image(n) => {
                let patches = images.get(*n).ok_or_else(|| {
                    Error::Invalid(format!(
                        "the conversation has a picture {n}, but only {} pictures came",
                        images.len()
                    ))
                })?;
                tokens.push(special_token_id("<|image_start|>", tokenizer)?);
                segments.push(Segment::Tokens(std::mem::take(&mut tokens)));
                segments.push(Segment::Patches(patches.clone()));
                tokens.push(special_token_id("<|image_end|>", tokenizer)?);
            }
            PromptPart::Video(_) => {
                return Err(Error::Unsupported(
                    "videos are not supported; send frames as pictures".to_owned(),
                ));
            }
        }
    }
    segments.push(Segment::Tokens(tokens));
    Ok(segments)
}
