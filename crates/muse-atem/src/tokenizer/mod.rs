//! Text to tokens and back: byte-level BPE that never finds special tokens in text.

mod byte_alphabet;
mod load;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use fancy_regex::Regex;
use muse_core::contract::{Token, Vocabulary};
use muse_core::{Error, Result};
use tokenizers::Model;
use tokenizers::models::bpe::BPE;

/// The tokenizer of a checkpoint.
///
/// Text is encoded as text whatever it spells, and no token is added: special tokens enter a prompt
/// only as [`muse_core::contract::PromptPart::Special`].
pub struct Tokenizer {
    bpe: BPE,
    /// Splits text into the words that are encoded one by one.
    split: Regex,
    /// The bytes of all tokens, concatenated.
    bytes: Vec<u8>,
    /// Token `t` is `bytes[ends[t - 1]..ends[t]]`.
    ends: Vec<u32>,
    control: Vec<bool>,
    special: HashMap<String, Token>,
}

impl Tokenizer {
    /// Builds the tokenizer.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the vocabulary contradicts itself, [`Error::Unsupported`] when it
    /// is of another kind than byte-level BPE.
    pub fn new(vocabulary: Vocabulary) -> Result<Arc<Self>> {
        load::tables(vocabulary)?.build().map(Arc::new)
    }

    fn encode_word(&self, word: &str, out: &mut Vec<Token>) {
        let characters: String = word.bytes().map(byte_alphabet::to_char).collect();
        // Fails only for characters outside the vocabulary; all 256 were checked to be in it.
        let tokens = self.bpe.tokenize(&characters).expect("all bytes are in the vocabulary");
        out.extend(tokens.into_iter().map(|token| Token(token.id)));
    }
}

impl muse_core::contract::Tokenizer for Tokenizer {
    fn encode(&self, text: &str, out: &mut Vec<Token>) {
        let mut at = 0;
        // When the regex gives up, the rest of the text is encoded as one word: the tokens may
        // differ, the bytes do not.
        for found in self.split.find_iter(text).map_while(std::result::Result::ok) {
            if found.start() > at {
                self.encode_word(&text[at..found.start()], out);
            }
            if !found.as_str().is_empty() {
                self.encode_word(found.as_str(), out);
            }
            at = found.end();
        }
        if at < text.len() {
            self.encode_word(&text[at..], out);
        }
    }

    fn special_token(&self, spelling: &str) -> Option<Token> {
        self.special.get(spelling).copied()
    }

    fn is_special(&self, token: Token) -> bool {
        self.control.get(token.0 as usize).copied().unwrap_or(false)
    }

    fn decode(&self, token: Token, out: &mut Vec<u8>) {
        let index = token.0 as usize;
        if let Some(&end) = self.ends.get(index) {
            let start = if index == 0 { 0 } else { self.ends[index - 1] };
            out.extend_from_slice(&self.bytes[start as usize..end as usize]);
        }
    }

    fn vocab_size(&self) -> usize {
        self.ends.len()
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer")
            .field("tokens", &self.ends.len())
            .field("special", &self.special.len())
            .finish_non_exhaustive()
    }
}

fn corrupt<T>(message: String) -> Result<T> {
    Err(Error::Corrupt(format!("vocabulary: {message}; the file is damaged, fetch it again")))
}

fn unsupported<T>(message: String) -> Result<T> {
    Err(Error::Unsupported(format!(
        "vocabulary: {message}; Muse-Glimmer uses byte-level BPE with one split expression"
    )))
}
