//! Writes the vocabulary of a checkpoint as keys of a GGUF file.

use std::collections::HashMap;

use muse_core::contract::WeightSource;
use serde::Deserialize;

use super::keys::GgufKeys;
use crate::checkpoint::{Checkpoint, Origin};
use crate::error::{Error, Result, escaped};
use crate::folder::SourceFile;
use crate::settings::max;

const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const UNUSED: i32 = 5;

/// Special tokens that GGUF keys name: the key and the token's text.
const SPECIAL_TOKENS: [(&str, &str); 4] = [
    ("bos", "<|begin_of_text|>"),
    ("eos", "<|end_of_text|>"),
    ("eot", "<|eot|>"),
    ("padding", "<|finetune_right_pad|>"),
];

/// Copies the tokenizer of a checkpoint, if it has one.
pub(super) fn copy(checkpoint: &Checkpoint, keys: &mut GgufKeys) -> Result<()> {
    match checkpoint.origin() {
        Origin::Gguf(header) => {
            for (key, encoded) in checkpoint.encoded_keys(header) {
                if key.starts_with("tokenizer.") {
                    keys.set_encoded(key, encoded.to_vec());
                }
            }
        }
        Origin::HuggingFace { tokenizer: None, .. } => {}
        Origin::HuggingFace { tokenizer: Some(file), chat_template } => {
            let rows = checkpoint.spec().text.as_ref().map(|text| text.vocab);
            tables(file, rows, keys)?;
            if let Some(template) = chat_template {
                keys.set("tokenizer.chat_template", template);
            }
        }
    }
    Ok(())
}

/// The parts of tokenizer.json that GGUF has keys for.
#[derive(Deserialize)]
struct Tokenizer {
    #[serde(default)]
    added_tokens: Vec<Added>,
    model: Model,
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    content: String,
}

#[derive(Deserialize)]
struct Model {
    #[serde(default)]
    r#type: Option<String>,
    vocab: HashMap<String, u32>,
    merges: Vec<Merge>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Pair(String, String),
    Line(String),
}

fn tables(file: &SourceFile, rows: Option<usize>, keys: &mut GgufKeys) -> Result<()> {
    let malformed = |location: &str, found: String, expected: String| Error::Malformed {
        file: file.name.clone(),
        location: location.to_owned(),
        found,
        expected,
    };
    let Tokenizer { added_tokens, model } =
        serde_json::from_slice(file.text()?).map_err(|error| {
            malformed("JSON", error.to_string(), "a tokenizer.json of HuggingFace".to_owned())
        })?;
    if model.r#type.as_deref().is_some_and(|kind| kind != "BPE") {
        let found = model.r#type.as_deref().unwrap_or_default();
        return Err(malformed("model.type", escaped(found), "BPE".to_owned()));
    }
    let ids = model.vocab.values().copied().chain(added_tokens.iter().map(|added| added.id));
    let count = ids.max().map_or(0, |max| max as usize + 1);
    let size = rows.unwrap_or(count);
    if count > size || size > max::VOCAB {
        let found = format!("token id {}", count.saturating_sub(1));
        let expected = format!("ids below {}, the rows of the embedding", size.min(max::VOCAB));
        return Err(malformed("the tokens", found, expected));
    }
    let mut tokens: Vec<String> = (0..size).map(|id| format!("[PAD{id}]")).collect();
    let mut kinds = vec![UNUSED; size];
    let texts = model.vocab.into_iter().map(|(text, id)| (text, id, NORMAL));
    let special = added_tokens.into_iter().map(|added| (added.content, added.id, CONTROL));
    for (text, id, kind) in texts.chain(special) {
        (tokens[id as usize], kinds[id as usize]) = (text, kind);
    }
    let merges: Vec<String> = model
        .merges
        .into_iter()
        .map(|merge| match merge {
            Merge::Pair(left, right) => format!("{left} {right}"),
            Merge::Line(line) => line,
        })
        .collect();
    keys.set("tokenizer.ggml.model", "gpt2");
    // The pre-tokenizer of all models of the family.
    keys.set("tokenizer.ggml.pre", "llama4");
    keys.set("tokenizer.ggml.tokens", &tokens[..]);
    keys.set("tokenizer.ggml.token_type", &kinds[..]);
    keys.set("tokenizer.ggml.merges", &merges[..]);
    for (key, text) in SPECIAL_TOKENS {
        let control = |id: &usize| kinds[*id] == CONTROL && tokens[*id] == text;
        if let Some(id) = (0..size).find(control) {
            keys.set(&format!("tokenizer.ggml.{key}_token_id"), &(id as u32));
        }
    }
    // The chat template writes the BOS token itself.
    keys.set("tokenizer.ggml.add_bos_token", &false);
    Ok(())
}
