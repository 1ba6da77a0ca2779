//! The input is generated token ids, two bytes each: text and special tokens in any order.
#![no_main]

#[path = "../answers.rs"]
#[allow(dead_code, reason = "only the text target spells words")]
mod answers;

use std::sync::{Arc, LazyLock};

use answers::{conversation, summary};
use libfuzzer_sys::fuzz_target;
use muse_atem::{TokenOutputParser, Tokenizer};
use muse_core::contract::{ParsedEvent, OutputParser, Token, Vocabulary};

static NANO: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
    let json = include_bytes!("../../../crates/muse-serve/assets/nano/target/tokenizer.json");
    Tokenizer::new(Vocabulary::HuggingFace(json.to_vec())).expect("the embedded vocabulary")
});

fuzz_target!(|data: &[u8]| {
    let Some((how, ids)) = data.split_first() else { return };
    let conversation = conversation(how >> 1);
    let tokens = ids.chunks_exact(2).map(|id| Token(u32::from(u16::from_le_bytes([id[0], id[1]]))));
    let parse = |clear: bool| {
        let mut parser = TokenOutputParser::new(&conversation, &[], NANO.clone() as Arc<_>);
        let (mut out, mut all, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        for token in tokens.clone() {
            parser.push(token, &mut out);
            if clear {
                parser.content_tokens(&mut shares);
                all.append(&mut out);
            }
        }
        parser.finish(how & 1 == 1, &mut out);
        parser.content_tokens(&mut shares);
        all.append(&mut out);
        let joined: usize = shares.iter().map(|share| share.bytes).sum();
        assert_eq!(joined, summary(&all).1.len(), "the tokens of the content are not the content");
        all
    };
    let all = parse(true);
    // The events do not depend on when they are drained.
    assert_eq!(summary(&parse(false)), summary(&all));
    for event in &all {
        if let ParsedEvent::ToolCall(call) = event {
            let arguments: serde_json::Value =
                serde_json::from_str(&call.arguments).expect("arguments are JSON");
            assert!(arguments.is_object());
        }
    }
});
