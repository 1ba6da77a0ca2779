//! The tokenizer and both templates of muse-atem under the suites of their contracts, and one
//! vocabulary in two file formats.

use std::path::Path;
use std::sync::Arc;

use muse_atem::{FileTemplate, Template, Tokenizer};
use muse_core::contract::{PromptTemplate, Token, Tokenizer as _, WeightSource as _};
use muse_testkit::suite::template::Subject;
use muse_testkit::{golden_dir, nano_dir};
use muse_tests::cases;
use muse_tests::chats::chats;

fn open(path: &Path) -> Arc<Tokenizer> {
    let checkpoint = muse_weights::Checkpoint::open(path).unwrap();
    Tokenizer::new(checkpoint.vocabulary().unwrap().expect("a vocabulary")).unwrap()
}

fn nano() -> Arc<Tokenizer> {
    open(&nano_dir().join("target"))
}

fn template(build: impl Fn(Arc<Tokenizer>) -> Box<dyn PromptTemplate>) -> Subject {
    let tokenizer = nano();
    let header = &[" to=user", "<|message|>"];
    Subject {
        template: build(tokenizer.clone()),
        tokenizer,
        special: "<|message|>",
        header,
        end: "<|eot|>",
    }
}

mod tokenizer {
    const SPECIAL: &[&str] = &["<|message|>", "<|eot|>", "<|end_of_text|>"];

    muse_testkit::suite::tokenizer!(super::nano(), SPECIAL);
}

mod native_template {
    muse_testkit::suite::template!(super::template(|tokenizer| Box::new(super::Template::new(
        tokenizer
    ))));
}

mod template_file {
    const SOURCE: &str = include_str!("../../crates/muse-atem/tests/data/native.jinja");

    muse_testkit::suite::template!(super::template(|tokenizer| {
        Box::new(super::FileTemplate::new(SOURCE, tokenizer).expect("compiles"))
    }));
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    tokenizer.encode(text, &mut tokens);
    tokens
}

#[test]
fn huggingface_and_gguf_give_the_same_ids() {
    let folder = open(&nano_dir().join("target"));
    let gguf = open(&golden_dir().join("nano/gguf/target.bf16.gguf"));
    assert_eq!(folder.vocab_size(), gguf.vocab_size());
    for id in 0..u32::try_from(folder.vocab_size()).unwrap() {
        let (mut one, mut other) = (Vec::new(), Vec::new());
        folder.decode(Token(id), &mut one);
        gguf.decode(Token(id), &mut other);
        assert_eq!(one, other, "token {id}");
        assert_eq!(folder.is_special(Token(id)), gguf.is_special(Token(id)), "token {id}");
        if folder.is_special(Token(id)) {
            let mark = String::from_utf8(one).unwrap();
            assert_eq!(folder.special_token(&mark), Some(Token(id)));
            assert_eq!(gguf.special_token(&mark), Some(Token(id)));
        }
    }
    let mut texts: Vec<String> = cases::read(&golden_dir().join("atem/cases.jsonl"))
        .unwrap()
        .iter()
        .map(|case| format!("{}{}", case.given, case.expect))
        .collect();
    for chat in chats() {
        let mut bytes = Vec::new();
        chat.ids.iter().for_each(|token| folder.decode(*token, &mut bytes));
        texts.push(String::from_utf8(bytes).unwrap());
    }
    for text in &texts {
        assert_eq!(encode(&folder, text), encode(&gguf, text), "{text}");
    }
}
