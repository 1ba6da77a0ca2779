//! The output parser allocates what it emits, plus a bounded number of allocations per message: an
//! event is one string, a token without an event costs none.

use std::sync::Arc;

use muse_atem::{TextOutputParser, TokenOutputParser, Tokenizer};
use muse_core::contract::{
    Conversation, OutputParser, ParsedEvent, Token, Tokenizer as _, Tool, Vocabulary,
};
use muse_testkit::nano_dir;

/// Allocations per message, whatever its length: its header and name, and the doublings of a buffer
/// up to a megabyte.
const A_MESSAGE: u64 = 64;

/// Prose with many beginnings of special tokens, headers and tags, and with characters that tokens
/// and parts split.
const PROSE: &str = "The tide turns to noon, 3 < 7 and <b>; cost = 4 to 9 (to=7), <| or </atem: \
                     caf\u{e9} \u{1f9ad}\u{1f9ad} \u{6f6e} then to the sea. ";

fn conversation(tools: bool) -> Conversation {
    let tool = Tool {
        name: "files.put".to_owned(),
        description: String::new(),
        parameters: r#"{"type": "object", "properties": {"body": {"type": "string"}}}"#.to_owned(),
        strict: false,
    };
    Conversation { tools: if tools { vec![tool] } else { Vec::new() }, ..Conversation::default() }
}

/// The text of an answer without its first header's `<|message|>` and its end.
struct Answer<'a> {
    header: &'a str,
    body: String,
}

fn written() -> Vec<(&'static str, Conversation, Answer<'static>)> {
    let body = PROSE.repeat(400);
    let call = "<atem:function_calls>\n<atem:invoke name=\"files.put\">\n\
                <atem:parameter name=\"body\">"
        .to_owned()
        + &body
        + "</atem:parameter>\n</atem:invoke>\n</atem:function_calls>";
    let growing = Conversation { growing_calls: true, ..conversation(true) };
    let user = |body: &str| Answer { header: " to=user", body: body.to_owned() };
    let put = |body: &str| Answer { header: " to=files.put", body: body.to_owned() };
    vec![
        ("answer", conversation(false), user(&body)),
        ("answer beside tools", conversation(true), user(&body)),
        ("reasoning", conversation(true), Answer { header: " to=self", body }),
        ("call", conversation(true), put(&call)),
        ("growing call", growing, put(&call)),
    ]
}

/// Counts the allocations of `parse`, which takes input `i`, and of the events it makes.
fn check(name: &str, inputs: usize, mut parse: impl FnMut(usize, &mut Vec<ParsedEvent>)) {
    let mut out = Vec::with_capacity(64);
    let mut events = 0;
    let counted = allocation_counter::measure(|| {
        for i in 0..inputs {
            parse(i, &mut out);
            for event in out.drain(..) {
                events += match event {
                    ParsedEvent::Reasoning(_)
                    | ParsedEvent::Content(_)
                    | ParsedEvent::StopText(_) => 1,
                    // An id, a name and arguments are three strings.
                    ParsedEvent::ToolCall(_) | ParsedEvent::ToolCallDelta(_) => 3,
                }
            }
        }
    });
    let beyond = counted.count_total.saturating_sub(events);
    assert!(
        beyond <= A_MESSAGE,
        "{name}: {} allocations for {inputs} inputs, {events} of them emitted",
        counted.count_total
    );
}

#[test]
fn text_allocates_what_it_emits() {
    let stops: [&[String]; 2] = [&[], &["sea monster".to_owned(), "to noon!".to_owned()]];
    for (name, conversation, Answer { header, body }) in &written() {
        for size in [1, 4, 64, 4096] {
            for stop in stops {
                let mut parser = TextOutputParser::new(conversation, stop);
                parser.push(&format!("{header}<|message|>"), &mut Vec::new());
                let parts: Vec<&[u8]> = body.as_bytes().chunks(size).collect();
                check(&format!("{name}, parts of {size}"), parts.len(), |i, out| {
                    parser.push_bytes(parts[i], out);
                });
            }
        }
    }
}

#[test]
fn tokens_allocate_what_they_emit() {
    let json = std::fs::read(nano_dir().join("target/tokenizer.json")).expect("is embedded");
    let nano = Tokenizer::new(Vocabulary::HuggingFace(json)).expect("a tokenizer");
    for (name, conversation, Answer { header, body }) in &written() {
        let mut parser = TokenOutputParser::new(conversation, &[], Arc::clone(&nano) as Arc<_>);
        let mut tokens = Vec::new();
        nano.encode(header, &mut tokens);
        tokens.extend(nano.special_token("<|message|>"));
        tokens.iter().for_each(|token: &Token| parser.push(*token, &mut Vec::new()));
        tokens.clear();
        nano.encode(body, &mut tokens);
        check(name, tokens.len(), |i, out| parser.push(tokens[i], out));
    }
}
