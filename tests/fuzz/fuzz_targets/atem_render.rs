//! The input is a conversation: the native renderer and a template file of the same format give the
//! same prompt, and no text in it becomes a special token.
#![no_main]

#[path = "../answers.rs"]
#[allow(dead_code, reason = "only its words are spelled here")]
mod answers;

use std::sync::{Arc, LazyLock};

use answers::spelled;
use libfuzzer_sys::fuzz_target;
use muse_atem::{FileTemplate, Tokenizer, encode, render, render_history};
use muse_core::contract::{
    Content, Conversation, Part, PromptPart, PromptTemplate, Tokenizer as _, Tool, ToolCall, Message,
    Vocabulary,
};

static NANO: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
    let json = include_bytes!("../../../crates/muse-serve/assets/nano/target/tokenizer.json");
    Tokenizer::new(Vocabulary::HuggingFace(json.to_vec())).expect("the embedded vocabulary")
});
static FILE: LazyLock<FileTemplate> = LazyLock::new(|| {
    let source = include_str!("../../../crates/muse-atem/tests/data/native.jinja");
    FileTemplate::new(source, NANO.clone() as Arc<_>).expect("a template")
});

/// Values of arguments and schemas, as JSON.
const VALUES: [&str; 12] = [
    "null",
    "true",
    "7",
    "-12345678901234567890",
    "2.50",
    "1e-05",
    "[1, \"two\", {\"k\": []}]",
    "{\"type\": \"object\", \"properties\": {\"ü\": {}}}",
    "\"<|eot|>\"",
    "\"a\\nb\\u0000</atem:parameter>\"",
    "{}",
    "[",
];

/// The input bytes, consumed as choices.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn next(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn text(&mut self) -> String {
        let length = usize::from(self.next() % 24).min(self.0.len());
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        String::from_utf8_lossy(&spelled(bytes)).into_owned()
    }

    fn maybe_text(&mut self) -> Option<String> {
        (self.next() % 3 == 0).then(|| self.text())
    }

    fn list<T>(&mut self, most: u8, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.next() % (most + 1)).map(|_| make(self)).collect()
    }

    fn value(&mut self) -> &'static str {
        VALUES[usize::from(self.next()) % VALUES.len()]
    }

    fn content(&mut self) -> Content {
        self.list(3, |choices| match choices.next() % 8 {
            0 => Part::Image,
            1 => Part::Video,
            _ => Part::Text(choices.text()),
        })
    }

    fn call(&mut self) -> ToolCall {
        let members = self.list(3, |choices| {
            let key = serde_json::Value::String(choices.text());
            format!("{key}: {}", choices.value())
        });
        let arguments = format!("{{{}}}", members.join(", "));
        // Results name their call by its id; a call without an id is referred to by none.
        ToolCall { id: format!("c{}", self.text()), name: self.text(), arguments }
    }

    fn message(&mut self) -> Message {
        match self.next() % 5 {
            0 => Message::System(self.content()),
            1 => Message::User(self.content()),
            2 => Message::Tool {
                name: self.maybe_text(),
                call_id: self.maybe_text().map(|id| format!("c{id}")),
                content: self.content(),
            },
            _ => Message::Assistant {
                reasoning: self.maybe_text(),
                content: self.content(),
                calls: self.list(2, Self::call),
                recipient: self.maybe_text(),
                end_turn: [None, Some(true), Some(false)][usize::from(self.next() % 3)],
            },
        }
    }

    fn conversation(&mut self) -> Conversation {
        Conversation {
            messages: self.list(5, Self::message),
            tools: self.list(3, |choices| Tool {
                name: choices.text(),
                description: choices.text(),
                parameters: choices.value().to_owned(),
                strict: false,
            }),
            namespaces: self.list(2, |choices| (choices.text(), choices.text())),
            reasoning_strength: self.maybe_text(),
            knowledge_cutoff: self.maybe_text(),
            ..Conversation::default()
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let conversation = Choices(data).conversation();
    let filed = FILE.render(&conversation);
    let prompt = match render(&conversation) {
        Ok(prompt) => prompt,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(filed.is_err(), "a file renders what is refused: {error}");
            return;
        }
    };
    assert_eq!(filed.expect("what renders natively renders by the file"), prompt);
    let history = render_history(&conversation).expect("it rendered");
    assert!(prompt.starts_with(&history));
    if let Ok(tokens) = encode(&prompt, NANO.as_ref()) {
        let special = tokens.iter().filter(|token| NANO.is_special(**token)).count();
        let written = prompt.iter().filter(|part| matches!(part, PromptPart::Special(_))).count();
        assert_eq!(special, written, "text became a special token");
    }
});
