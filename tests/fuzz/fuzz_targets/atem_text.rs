//! The input is generated text: the events do not depend on how it is split.
#![no_main]

#[path = "../answers.rs"]
mod answers;

use answers::{conversation, spelled, summary};
use libfuzzer_sys::fuzz_target;
use muse_atem::TextOutputParser;

fuzz_target!(|data: &[u8]| {
    // The first bytes select options, the rest is parsed.
    let Some((&[how, cut, stop], text)) = data.split_first_chunk() else { return };
    let text = &spelled(text)[..];
    let complete = how & 1 == 1;
    let stops = if stop % 4 == 0 { vec!["st".to_owned(), "t>".to_owned()] } else { Vec::new() };
    let conversation = conversation(how >> 1);
    let parse = |size: usize| {
        let mut parser = TextOutputParser::new(&conversation, &stops);
        let mut out = Vec::new();
        text.chunks(size.max(1)).for_each(|part| parser.push_bytes(part, &mut out));
        parser.finish(complete, &mut out);
        summary(&out)
    };
    let whole = parse(text.len());
    assert_eq!(parse(1), whole);
    assert_eq!(parse(usize::from(cut)), whole);
});
