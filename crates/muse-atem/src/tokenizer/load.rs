//! Reads vocabularies from `tokenizer.json` or from a GGUF file into the same tables. Both are
//! untrusted.

use std::collections::HashMap;

use fancy_regex::RegexBuilder;
use muse_core::contract::{Token, TokenKind, Vocabulary};
use muse_core::{Error, Result};
use serde::Deserialize;
use serde_json::Value;
use tokenizers::models::bpe::{BPE, Merges, Vocab};

use super::{Tokenizer, byte_alphabet, corrupt, unsupported};

/// The split expression of the o200k family, which GGUF files only name.
const O200K: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

/// The most unused ids: a small file with a huge id must not allocate gigabytes.
const MAX_GAP: usize = 65_536;

/// The tables a tokenizer is built from.
pub(super) struct VocabularyTables {
    /// Text tokens in the byte alphabet, with their ids.
    text: Vec<(String, u32)>,
    /// Special tokens with their ids.
    special: Vec<(String, u32)>,
    merges: Merges,
    split: String,
    ignore_merges: bool,
}

pub(super) fn tables(vocabulary: Vocabulary) -> Result<VocabularyTables> {
    match vocabulary {
        Vocabulary::HuggingFace(json) => hugging_face(&json),
        Vocabulary::Bpe { tokens, kinds, merges, pre, bos: _ } => gguf(tokens, kinds, merges, &pre),
    }
}

impl VocabularyTables {
    pub(super) fn build(self) -> Result<Tokenizer> {
        let count = self.text.len() + self.special.len();
        let ids = self.text.iter().chain(&self.special).map(|(_, id)| *id as usize + 1);
        let size = ids.max().unwrap_or(0);
        if size > count + MAX_GAP {
            return corrupt(format!("token id {} with only {count} tokens", size - 1));
        }
        let mut token_bytes: Vec<Option<Vec<u8>>> = vec![None; size];
        let mut put = |id: u32, name: &str, bytes: Vec<u8>| match &mut token_bytes[id as usize] {
            Some(_) => corrupt(format!("id {id} is given twice, the second time to `{name}`")),
            slot => {
                *slot = Some(bytes);
                Ok(())
            }
        };
        for (text, id) in &self.text {
            let Some(bytes) = text.chars().map(byte_alphabet::to_byte).collect() else {
                return corrupt(format!(
                    "token {id} `{text}` has characters outside the byte alphabet"
                ));
            };
            put(*id, text, bytes)?;
        }
        let mut control = vec![false; size];
        for (spelling, id) in &self.special {
            put(*id, spelling, spelling.clone().into_bytes())?;
            control[*id as usize] = true;
        }
        let texts = self.text.len();
        let vocab: Vocab = self.text.into_iter().collect();
        if vocab.len() < texts {
            return corrupt(format!("{} token texts are given twice", texts - vocab.len()));
        }
        for byte in 0..=255 {
            let character = byte_alphabet::to_char(byte);
            if !vocab.contains_key(character.encode_utf8(&mut [0; 4]) as &str) {
                return corrupt(format!("no token for byte {byte:#04x}"));
            }
        }
        let (bytes, ends) = flatten(&token_bytes)?;
        let bpe = BPE::builder()
            .vocab_and_merges(vocab, self.merges)
            .ignore_merges(self.ignore_merges)
            .build()
            .or_else(|e| corrupt(format!("merge rules do not fit the tokens: {e}")))?;
        let split = RegexBuilder::new(&self.split)
            .backtrack_limit(usize::MAX)
            .build()
            .or_else(|e| corrupt(format!("split expression: {e}")))?;
        let special =
            self.special.into_iter().map(|(spelling, id)| (spelling, Token(id))).collect();
        Ok(Tokenizer { bpe, split, bytes, ends, control, special })
    }
}

/// Concatenates the bytes of all tokens; unused ids have none.
fn flatten(token_bytes: &[Option<Vec<u8>>]) -> Result<(Vec<u8>, Vec<u32>)> {
    let mut bytes = Vec::new();
    let mut ends = Vec::with_capacity(token_bytes.len());
    for token in token_bytes {
        bytes.extend_from_slice(token.as_deref().unwrap_or_default());
        match u32::try_from(bytes.len()) {
            Ok(end) => ends.push(end),
            Err(_) => return corrupt("token texts of 4 GB and more".to_owned()),
        }
    }
    Ok((bytes, ends))
}

/// The parts of `tokenizer.json` that determine ids. The post-processor is ignored, since the
/// template writes all special tokens; so is the decoder, which follows from the pre-tokenizer.
#[derive(Deserialize)]
struct TokenizerJson {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    normalizer: Option<Value>,
    pre_tokenizer: Option<Value>,
    model: Model,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
}

#[derive(Deserialize)]
struct Model {
    #[serde(default)]
    r#type: Option<String>,
    vocab: HashMap<String, u32>,
    merges: Vec<Merge>,
    #[serde(default)]
    ignore_merges: bool,
    #[serde(default)]
    byte_fallback: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Pair(String, String),
    Line(String),
}

fn hugging_face(json: &[u8]) -> Result<VocabularyTables> {
    let file: TokenizerJson = serde_json::from_slice(json)
        .or_else(|e| corrupt(format!("tokenizer.json is not readable: {e}")))?;
    if file.model.r#type.as_deref().is_some_and(|kind| kind != "BPE") || file.model.byte_fallback {
        return unsupported(format!(
            "tokenizer.json has a model of type {}",
            file.model.r#type.as_deref().unwrap_or("BPE with byte fallback")
        ));
    }
    if file.normalizer.is_some_and(|normalizer| !normalizer.is_null()) {
        return unsupported("tokenizer.json has a normalizer".to_owned());
    }
    let split = split_expression(file.pre_tokenizer.as_ref().unwrap_or(&Value::Null))?;
    let mut vocab = file.model.vocab;
    let mut special = Vec::with_capacity(file.added_tokens.len());
    for added in file.added_tokens {
        if !added.special {
            return unsupported(format!(
                "added token {} `{}` is not special",
                added.id, added.content
            ));
        }
        // As a text token, too, it could be spelled by text.
        vocab.remove(&added.content);
        special.push((added.content, added.id));
    }
    let merges = file.model.merges.into_iter().map(|merge| match merge {
        Merge::Pair(left, right) => Ok((left, right)),
        Merge::Line(line) => pair(&line),
    });
    Ok(VocabularyTables {
        text: vocab.into_iter().collect(),
        special,
        merges: merges.collect::<Result<_>>()?,
        split,
        ignore_merges: file.model.ignore_merges,
    })
}

/// The expression of a pre-tokenizer that splits by one expression and then maps bytes to
/// characters.
fn split_expression(pre_tokenizer: &Value) -> Result<String> {
    let steps = &pre_tokenizer["pretokenizers"];
    let (split, byte_level) = (&steps[0], &steps[1]);
    let expression = split["pattern"]["Regex"].as_str();
    let fits = pre_tokenizer["type"] == "Sequence"
        && steps.as_array().is_some_and(|steps| steps.len() == 2)
        && split["type"] == "Split"
        && split["behavior"] == "Isolated"
        && split["invert"] != true
        && byte_level["type"] == "ByteLevel"
        && byte_level["add_prefix_space"] != true
        && byte_level["use_regex"] == false;
    match expression {
        Some(expression) if fits => Ok(expression.to_owned()),
        _ => unsupported(
            "tokenizer.json does not split by one expression and then by bytes".to_owned(),
        ),
    }
}

fn gguf(
    tokens: Vec<String>,
    kinds: Vec<TokenKind>,
    merges: Vec<String>,
    pre: &str,
) -> Result<VocabularyTables> {
    if kinds.len() != tokens.len() {
        return corrupt(format!("{} tokens but {} token types", tokens.len(), kinds.len()));
    }
    if !matches!(pre, "llama4" | "gpt-4o") {
        return unsupported(format!(
            "tokenizer.ggml.pre is `{pre}`, expected `llama4` or `gpt-4o`"
        ));
    }
    let (mut text, mut special) = (Vec::with_capacity(tokens.len()), Vec::new());
    for ((token, kind), id) in tokens.into_iter().zip(kinds).zip(0_u32..) {
        match kind {
            TokenKind::Normal => text.push((token, id)),
            TokenKind::Control | TokenKind::Other => special.push((token, id)),
            // Some converters give the reserved special tokens this type.
            TokenKind::UserDefined if token.starts_with("<|") => special.push((token, id)),
            TokenKind::UserDefined => {
                return unsupported(format!("token {id} `{token}` is user-defined text"));
            }
        }
    }
    let merges = merges.iter().map(|line| pair(line)).collect::<Result<_>>()?;
    Ok(VocabularyTables { text, special, merges, split: O200K.to_owned(), ignore_merges: true })
}

fn pair(line: &str) -> Result<(String, String)> {
    match line.split_once(' ') {
        Some((left, right)) => Ok((left.to_owned(), right.to_owned())),
        None => Err(Error::Corrupt(format!(
            "vocabulary: merge rule `{line}` does not name two tokens with a space between; the \
             file is damaged, fetch it again"
        ))),
    }
}
