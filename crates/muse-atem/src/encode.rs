//! A prompt's pieces to the segments an engine takes.

use muse_core::contract::{Patches, PromptPart, Segment, Token, Tokenizer};
use muse_core::{Error, Result};

/// The tokens of a prompt that holds no pictures.
///
/// # Errors
/// [`Error::Unsupported`] when it does hold pictures or videos, [`Error::Corrupt`] when the
/// vocabulary lacks a mark.
pub fn encode(pieces: &[PromptPart], tokenizer: &dyn Tokenizer) -> Result<Vec<Token>> {
    let mut tokens = Vec::new();
    for piece in pieces {
        match piece {
            PromptPart::Text(text) => tokenizer.encode(text, &mut tokens),
            PromptPart::Special(mark) => tokens.push(special_token(mark, tokenizer)?),
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

/// The segments of a prompt, its pictures in place of their placeholders: `images[n]` is the
/// `n`-th picture of the conversation. Each is framed by its own marks.
///
/// # Errors
/// [`Error::Invalid`] when a picture is missing, [`Error::Unsupported`] for videos,
/// [`Error::Corrupt`] when the vocabulary lacks a mark.
pub fn encode_with_images(
    pieces: &[PromptPart],
    images: &[Patches],
    tokenizer: &dyn Tokenizer,
) -> Result<Vec<Segment>> {
    let mut segments = Vec::new();
    let mut tokens = Vec::new();
    for piece in pieces {
        match piece {
            PromptPart::Text(text) => tokenizer.encode(text, &mut tokens),
            PromptPart::Special(mark) => tokens.push(special_token(mark, tokenizer)?),
            PromptPart::Image(n) => {
                let patches = images.get(*n).ok_or_else(|| {
                    Error::Invalid(format!(
                        "the conversation has a picture {n}, but only {} pictures came",
                        images.len()
                    ))
                })?;
                tokens.push(special_token("<|image_start|>", tokenizer)?);
                segments.push(Segment::Tokens(std::mem::take(&mut tokens)));
                segments.push(Segment::Patches(patches.clone()));
                tokens.push(special_token("<|image_end|>", tokenizer)?);
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

fn special_token(mark: &str, tokenizer: &dyn Tokenizer) -> Result<Token> {
    tokenizer.special_token(mark).ok_or_else(|| {
        Error::Corrupt(format!(
            "the vocabulary has no token {mark}: it is not that of a Muse-Glimmer checkpoint"
        ))
    })
}
