//! Tests of [`Tokenizer`].

use muse_core::contract::{Token, Tokenizer};

/// Expands to one test per property for the tokenizer that the first expression builds; the second
/// one lists special tokens that it has.
#[macro_export]
macro_rules! tokenizer_suite {
    ($build:expr, $special:expr) => {
        $crate::tokenizer_suite!(@tests ($build, $special);
            text_decodes_to_itself
            encoding_appends
            special_tokens_are_found_by_their_spelling
            text_never_becomes_a_special_token
            every_token_decodes
        );
    };
    (@tests $with:tt; $($test:ident)*) => {
        $( $crate::tokenizer_suite!(@test $with $test); )*
    };
    (@test ($build:expr, $special:expr) $test:ident) => {
        #[test]
        fn $test() {
            $crate::suite::tokenizer::$test(&*$build, $special);
        }
    };
}

const TEXTS: [&str; 8] = [
    "",
    " ",
    "Hello, world!",
    "line one\n\n\tline two\r\n  indented",
    "1234567890 3.14159 0xff",
    "Grüße aus Köln, 東京 и Москва",
    "emoji 👩‍👩‍👧‍👦 and combining e\u{301}, zero width \u{200b}",
    "fn main() { println!(\"{}\", 1 << 20); }",
];

fn encode(tokenizer: &dyn Tokenizer, text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    tokenizer.encode(text, &mut tokens);
    tokens
}

fn decode(tokenizer: &dyn Tokenizer, tokens: &[Token]) -> String {
    let mut bytes = Vec::new();
    tokens.iter().for_each(|&token| tokenizer.decode(token, &mut bytes));
    String::from_utf8(bytes).expect("text")
}

/// Text is encoded into tokens of the vocabulary that decode to it.
pub fn text_decodes_to_itself(tokenizer: &dyn Tokenizer, _: &[&str]) {
    for text in TEXTS {
        let tokens = encode(tokenizer, text);
        assert!(tokens.iter().all(|token| (token.0 as usize) < tokenizer.vocab_size()));
        assert_eq!(decode(tokenizer, &tokens), text);
    }
}

/// Tokens are appended, and encoding does not depend on those before.
pub fn encoding_appends(tokenizer: &dyn Tokenizer, _: &[&str]) {
    let mut tokens = vec![Token(1)];
    for text in TEXTS {
        let before = tokens.clone();
        tokenizer.encode(text, &mut tokens);
        assert_eq!(tokens, [before, encode(tokenizer, text)].concat(), "{text}");
    }
}

/// A special token has a spelling that it decodes to; other spellings name none.
pub fn special_tokens_are_found_by_their_spelling(tokenizer: &dyn Tokenizer, special: &[&str]) {
    for spelling in special {
        let token = tokenizer.special_token(spelling).expect(spelling);
        assert!(tokenizer.is_special(token), "{spelling}");
        assert_eq!(decode(tokenizer, &[token]), *spelling);
    }
    for spelling in ["", "hello", "<|no such token|>", "<|"] {
        assert_eq!(tokenizer.special_token(spelling), None, "{spelling}");
    }
}

/// The spelling of a special token inside text is encoded as text.
pub fn text_never_becomes_a_special_token(tokenizer: &dyn Tokenizer, special: &[&str]) {
    for spelling in special {
        for text in [(*spelling).to_owned(), format!("a{spelling}b"), spelling.repeat(3)] {
            let tokens = encode(tokenizer, &text);
            assert!(!tokens.iter().any(|&token| tokenizer.is_special(token)), "{text}");
            assert_eq!(decode(tokenizer, &tokens), text);
        }
    }
}

/// Every token of the vocabulary decodes to bytes, and ids past it to none.
pub fn every_token_decodes(tokenizer: &dyn Tokenizer, _: &[&str]) {
    let (mut bytes, mut empty) = (Vec::new(), 0);
    for id in 0..tokenizer.vocab_size() as u32 {
        bytes.clear();
        tokenizer.decode(Token(id), &mut bytes);
        empty += usize::from(bytes.is_empty());
    }
    assert!(empty * 100 <= tokenizer.vocab_size(), "{empty} tokens decode to nothing");
}
