//! The vocabulary in a GGUF file, and the tokens that end a turn.

use muse_core::contract::{TokenKind, Vocabulary};

use super::Keys;
use crate::error::{Result, shown};
use crate::settings::Settings;

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const TOKENS: &str = "tokenizer.ggml.tokens";
const KINDS: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";

/// Marks known by their text: a key that should name one may be missing.
const END_OF_TEXT: &[u8] = b"<|end_of_text|>";
const END_OF_TURN: &[u8] = b"<|eot|>";
const END_OF_MESSAGE: &[u8] = b"<|eom|>";
const PATCH: &[u8] = b"<|patch|>";

/// Facts of the vocabulary that a model needs before any text is encoded.
pub(super) struct Marks {
    /// Tokens that end a turn: those the keys name, and those known by their text.
    pub(super) stop: Vec<u32>,
    /// Stands for a row of a picture.
    pub(super) image: Option<u32>,
}

/// Reads the marks; `keys` must have no prefix.
pub(super) fn marks(keys: Keys<'_>, vocab: usize) -> Result<Marks> {
    let mut stop = Vec::new();
    for key in ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"] {
        stop.extend(token(keys, key, vocab)?);
    }
    let mut image = None;
    if let Some(tokens) = keys.texts(TOKENS)? {
        if tokens.len() != vocab {
            let found = format!("a list of {}", tokens.len());
            return Err(keys.wrong(TOKENS, found, format!("{vocab}, the rows of the embedding")));
        }
        for (text, id) in tokens.zip(0..) {
            match text {
                END_OF_TEXT | END_OF_TURN => stop.push(id),
                // It parts the messages of a turn, so a file that names it an end is overruled.
                END_OF_MESSAGE => stop.retain(|&stop| stop != id),
                PATCH => image = Some(id),
                _ => {}
            }
        }
    }
    let mut seen = std::collections::HashSet::new();
    stop.retain(|id| seen.insert(*id));
    Ok(Marks { stop, image })
}

fn token(keys: Keys<'_>, key: &str, vocab: usize) -> Result<Option<u32>> {
    match keys.integer(key)? {
        Some(id) if id >= vocab as u64 => {
            Err(keys.wrong(key, id, format!("a token id below the vocabulary's size, {vocab}")))
        }
        id => Ok(id.map(|id| id as u32)),
    }
}

/// The whole vocabulary, if the file has one; `keys` must have no prefix.
pub(super) fn vocabulary(keys: Keys<'_>) -> Result<Option<Vocabulary>> {
    match keys.text(MODEL)?.as_deref() {
        None | Some("none" | "no_vocab") => return Ok(None),
        Some("gpt2") => {}
        Some(other) => {
            let found = format!("`{}`", shown(other));
            return Err(keys.variant(MODEL, found, "`gpt2`, byte-level BPE"));
        }
    }
    let tokens = texts(keys, TOKENS)?;
    let kinds = match keys.integers(KINDS)? {
        None => vec![TokenKind::Normal; tokens.len()],
        Some(kinds) if kinds.len() != tokens.len() => {
            let found = format!("a list of {}", kinds.len());
            return Err(keys.wrong(KINDS, found, format!("{}, one a token", tokens.len())));
        }
        Some(kinds) => kinds.into_iter().map(kind).collect(),
    };
    let pre = keys.text(PRE)?;
    Ok(Some(Vocabulary::Bpe {
        kinds,
        merges: texts(keys, MERGES)?,
        pre: pre.ok_or_else(|| keys.wrong(PRE, "nothing", "the name of a pre-tokenizer"))?,
        bos: token(keys, "tokenizer.ggml.bos_token_id", tokens.len())?,
        tokens,
    }))
}

fn kind(id: u64) -> TokenKind {
    match id {
        1 => TokenKind::Normal,
        3 => TokenKind::Control,
        4 => TokenKind::UserDefined,
        _ => TokenKind::Other,
    }
}

fn texts(keys: Keys<'_>, key: &str) -> Result<Vec<String>> {
    let Some(texts) = keys.texts(key)? else {
        return Err(keys.wrong(key, "nothing", "a list of texts"));
    };
    let owned = |(i, text): (usize, &[u8])| {
        let text = std::str::from_utf8(text);
        text.map(str::to_owned).map_err(|error| {
            keys.wrong(key, format!("text {i} that is not UTF-8: {error}"), "UTF-8")
        })
    };
    texts.enumerate().map(owned).collect()
}
