//! What a model wrote, as text, is the input: any cut of it must be heard as the whole is.
#![no_main]

#[path = "../answers.rs"]
mod answers;

use answers::{conversation, heard, spelled};
use libfuzzer_sys::fuzz_target;
use muse_atem::TextOutputParser;

fuzz_target!(|data: &[u8]| {
    // The first bytes say how to hear, the rest is heard.
    let Some((&[how, cut, stop], text)) = data.split_first_chunk() else { return };
    let text = &spelled(text)[..];
    let complete = how & 1 == 1;
    let stops = if stop % 4 == 0 { vec!["st".to_owned(), "t>".to_owned()] } else { Vec::new() };
    let conversation = conversation(how >> 1);
    let hear = |size: usize| {
        let mut listener = TextOutputParser::new(&conversation, &stops);
        let mut out = Vec::new();
        text.chunks(size.max(1)).for_each(|part| listener.hear_bytes(part, &mut out));
        listener.finish(complete, &mut out);
        heard(&out)
    };
    let whole = hear(text.len());
    assert_eq!(hear(1), whole);
    assert_eq!(hear(usize::from(cut)), whole);
});
