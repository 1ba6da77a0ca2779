//! The vocabulary of a GGUF file, its stop tokens and its image token.

use muse_core::contract::{TokenKind, Vocabulary};

use super::Keys;
use crate::error::{Result, escaped};
use crate::settings::{Settings, special};

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const TOKENS: &str = "tokenizer.ggml.tokens";
const KINDS: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";

/// Special tokens that the engine needs whether or not a tokenizer is loaded.
pub(super) struct SpecialTokens {
    /// Tokens that end an answer: those the keys name and those found by their text.
    pub(super) stop: Vec<u32>,
    /// The placeholder for one row of an image.
    pub(super) image: Option<u32>,
}

/// Finds the special tokens; `keys` must have no prefix.
pub(super) fn special_tokens(keys: Keys<'_>, vocab: usize) -> Result<SpecialTokens> {
    let mut stop = Vec::new();
    for key in ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"] {
        stop.extend(token(keys, key, vocab)?);
    }
    let mut image = None;
    if let Some(tokens) = keys.strings(TOKENS)? {
        if tokens.len() != vocab {
            let found = format!("an array of {}", tokens.len());
            return Err(keys.wrong(TOKENS, found, format!("{vocab}, the rows of the embedding")));
        }
        for (text, id) in tokens.zip(0..) {
            match std::str::from_utf8(text).unwrap_or_default() {
                special::END_OF_TEXT | special::END_OF_TURN => stop.push(id),
                // `<|eom|>` separates the messages of one answer: never a stop token, whatever the keys
                // name.
                special::END_OF_MESSAGE => stop.retain(|&stop| stop != id),
                special::IMAGE => image = Some(id),
                _ => {}
            }
        }
    }
    let mut seen = std::collections::HashSet::new();
    stop.retain(|id| seen.insert(*id));
    Ok(SpecialTokens { stop, image })
}

fn token(keys: Keys<'_>, key: &str, vocab: usize) -> Result<Option<u32>> {
    match keys.integer(key)? {
        Some(id) if id >= vocab as u64 => {
            Err(keys.wrong(key, id, format!("a token id below the vocabulary's size, {vocab}")))
        }
        id => Ok(id.map(|id| id as u32)),
    }
}

/// The vocabulary, if the file has one; `keys` must have no prefix.
pub(super) fn vocabulary(keys: Keys<'_>) -> Result<Option<Vocabulary>> {
    match keys.string(MODEL)?.as_deref() {
        None | Some("none" | "no_vocab") => return Ok(None),
        Some("gpt2") => {}
        Some(other) => {
            let found = format!("`{}`", escaped(other));
            return Err(keys.variant(MODEL, found, "`gpt2`, byte-level BPE"));
        }
    }
    let tokens = strings(keys, TOKENS)?;
    let mut kinds = match keys.integers(KINDS)? {
        None => vec![TokenKind::Normal; tokens.len()],
        Some(kinds) if kinds.len() != tokens.len() => {
            let found = format!("an array of {}", kinds.len());
            return Err(keys.wrong(KINDS, found, format!("{}, one per token", tokens.len())));
        }
        Some(kinds) => kinds.into_iter().map(kind).collect(),
    };
    // Some converters write no types, or call every token normal.
    if !kinds.iter().any(|kind| matches!(kind, TokenKind::Control | TokenKind::UserDefined)) {
        for (kind, _) in kinds.iter_mut().zip(&tokens).filter(|(_, text)| is_special(text)) {
            *kind = TokenKind::Control;
        }
    }
    let pre = keys.string(PRE)?;
    Ok(Some(Vocabulary::Bpe {
        kinds,
        merges: strings(keys, MERGES)?,
        pre: pre.ok_or_else(|| keys.wrong(PRE, "nothing", "the name of a pre-tokenizer"))?,
        bos: token(keys, "tokenizer.ggml.bos_token_id", tokens.len())?,
        tokens,
    }))
}

/// Whether a token has the form of the family's special tokens: `<|name|>`.
fn is_special(text: &str) -> bool {
    let name = text.strip_prefix("<|").and_then(|rest| rest.strip_suffix("|>"));
    let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.is_some_and(|name| !name.is_empty() && name.chars().all(in_name))
}

fn kind(id: u64) -> TokenKind {
    match id {
        1 => TokenKind::Normal,
        3 => TokenKind::Control,
        4 => TokenKind::UserDefined,
        _ => TokenKind::Other,
    }
}

fn strings(keys: Keys<'_>, key: &str) -> Result<Vec<String>> {
    let Some(strings) = keys.strings(key)? else {
        return Err(keys.wrong(key, "nothing", "an array of strings"));
    };
    let owned = |(i, bytes): (usize, &[u8])| {
        let string = std::str::from_utf8(bytes);
        string.map(str::to_owned).map_err(|error| {
            keys.wrong(key, format!("string {i} that is not UTF-8: {error}"), "UTF-8")
        })
    };
    strings.enumerate().map(owned).collect()
}
