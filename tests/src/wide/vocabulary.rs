//! A made-up vocabulary of any size with the family's marks, valid for every reader: the letters of
//! all bytes, two-letter tokens with their merges, names that no merge reaches.

use anyhow::{Result, ensure};
use muse_weights::GgufKeys;

/// Marks by their distance from the first one.
const MARKS: [(usize, &str); 8] = [
    (0, "<|begin_of_text|>"),
    (1, "<|end_of_text|>"),
    (7, "<|eom|>"),
    (8, "<|eot|>"),
    (18, "<|finetune_right_pad|>"),
    (22, "<|start|>"),
    (23, "<|message|>"),
    (92, "<|patch|>"),
];
/// Marks and reserved ones of the published vocabulary, its last tokens.
const RESERVED: usize = 2048;
/// As many as [`MARKS`] need.
const FEWEST_RESERVED: usize = 128;
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;

/// Sets the tokenizer's keys.
pub(super) fn set(size: usize, keys: &mut GgufKeys) -> Result<()> {
    let reserved = if size > 2 * RESERVED { RESERVED } else { FEWEST_RESERVED };
    ensure!(size >= 256 + reserved, "{size} tokens, a vocabulary has at least {}", 256 + reserved);
    let first = size - reserved;
    let mut tokens: Vec<String> = (0..=255).map(|byte| letter(byte).to_string()).collect();
    let mut merges = Vec::new();
    let ascii = || (b'a'..=b'z').map(char::from);
    for pair in ascii().flat_map(|a| ascii().map(move |b| [a, b])).take(first - 256) {
        tokens.push(pair.iter().collect());
        merges.push(format!("{} {}", pair[0], pair[1]));
    }
    tokens.extend((tokens.len()..first).map(|id| format!("t{id}")));
    tokens.extend((0..reserved).map(|i| {
        let mark = MARKS.iter().find(|(at, _)| *at == i).map(|(_, mark)| (*mark).to_owned());
        mark.unwrap_or_else(|| format!("<|reserved_special_token_{i}|>"))
    }));
    let kinds: Vec<i32> = (0..size).map(|id| if id < first { NORMAL } else { CONTROL }).collect();
    keys.set("tokenizer.ggml.model", "gpt2");
    keys.set("tokenizer.ggml.pre", "llama4");
    keys.set("tokenizer.ggml.tokens", &tokens[..]);
    keys.set("tokenizer.ggml.token_type", &kinds[..]);
    keys.set("tokenizer.ggml.merges", &merges[..]);
    for (key, at) in [("bos", 0), ("eos", 1), ("eot", 8), ("padding", 18)] {
        keys.set(&format!("tokenizer.ggml.{key}_token_id"), &((first + at) as u32));
    }
    keys.set("tokenizer.ggml.add_bos_token", &false);
    Ok(())
}

/// The letter that stands for a byte in byte-level BPE: itself where it can be seen, else one from
/// 256 on.
fn letter(byte: u8) -> char {
    let seen = |byte: u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    if seen(byte) {
        return char::from(byte);
    }
    let hidden_before = (0..byte).filter(|&byte| !seen(byte)).count() as u32;
    char::from_u32(256 + hidden_before).expect("below the surrogates")
}
