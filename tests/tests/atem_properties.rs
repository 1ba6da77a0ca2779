//! Properties over every parser case: results do not depend on how bytes are split, and tokens give
//! the same events as text wherever no special token is quoted.

use std::sync::Arc;

use muse_atem::SpecialToken;
use muse_core::contract::{Token, Tokenizer as _};
use muse_testkit::golden_dir;
use muse_tests::cases::{self, Case, Input};

/// The parser cases with their whole output as one text.
fn written() -> Vec<(Case, Vec<u8>)> {
    let tokenizer = cases::nano_tokenizer().unwrap();
    let cases = cases::read(&golden_dir().join("atem/cases.jsonl")).unwrap();
    let answers = cases
        .into_iter()
        .filter(|case| matches!(case.given["type"].as_str(), Some("text" | "chunks" | "bytes")));
    answers
        .map(|case| {
            let inputs = cases::inputs(&case.given, &tokenizer).unwrap();
            let bytes = inputs.into_iter().flat_map(|input| match input {
                Input::Text(text) => text.into_bytes(),
                Input::Bytes(bytes) => bytes,
                Input::Token(_) => unreachable!("only cases of text were taken"),
            });
            let bytes = bytes.collect();
            (case, bytes)
        })
        .collect()
}

#[test]
fn splits_do_not_matter() {
    let cases = written();
    assert!(cases.len() > 90, "only {} cases", cases.len());
    for (case, bytes) in &cases {
        let whole = cases::parse(case, &[bytes]).unwrap();
        for at in 0..=bytes.len() {
            let (one, other) = bytes.split_at(at);
            assert_eq!(cases::parse(case, &[one, other]).unwrap(), whole, "{} at {at}", case.id);
        }
        let by_byte: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(cases::parse(case, &by_byte).unwrap(), whole, "{} by byte", case.id);
        if let Ok(text) = std::str::from_utf8(bytes) {
            let characters = text.char_indices().map(|(at, c)| &bytes[at..at + c.len_utf8()]);
            let characters: Vec<&[u8]> = characters.collect();
            assert_eq!(cases::parse(case, &characters).unwrap(), whole, "{} by character", case.id);
        }
    }
}

#[test]
fn tokens_give_what_text_gives() {
    let tokenizer = cases::nano_tokenizer().unwrap();
    let mut compared = 0;
    for (case, bytes) in written() {
        let quotes = case.expect.to_string();
        // Truncated or quoted special tokens are text in both, but not the same text.
        let Ok(text) = String::from_utf8(bytes) else { continue };
        if quotes.contains("<|") || text.ends_with("<|mess") {
            continue;
        }
        let tokens = encode_special_tokens(&text, &tokenizer);
        let by_token = cases::parse_tokens(&case, &tokens, &tokenizer).unwrap();
        assert_eq!(by_token, cases::parse(&case, &[text.as_bytes()]).unwrap(), "{}", case.id);
        compared += 1;
    }
    assert!(compared > 80, "only {compared} cases compared");
}

/// The tokens of a text in which special tokens are spelled.
fn encode_special_tokens(text: &str, tokenizer: &Arc<muse_atem::Tokenizer>) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let found = SpecialToken::ALL
            .iter()
            .filter_map(|special| Some((rest.find(special.text())?, special)))
            .min_by_key(|(at, _)| *at);
        let (plain, special) = match found {
            Some((at, special)) => (at, special.text()),
            None => (rest.len(), ""),
        };
        tokenizer.encode(&rest[..plain], &mut tokens);
        tokens.extend(tokenizer.special_token(special));
        rest = &rest[plain + special.len()..];
    }
    tokens
}
