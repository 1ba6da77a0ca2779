//! Hearing an answer allocates what it emits and, beside it, only what grows with the messages: an
//! event is one text, a token that emits nothing is free.

use std::sync::Arc;

use muse_atem::{TextOutputParser, TokenOutputParser, Tokenizer};
use muse_core::contract::{
    Conversation, OutputParser, ParsedEvent, Token, Tokenizer as _, Tool, Vocabulary,
};
use muse_testkit::nano_dir;

/// Allocations of a message whatever its length: what holds its header and name, and the steps in
/// which a buffer doubles to a megabyte.
const A_MESSAGE: u64 = 64;

/// Prose with much that looks like the beginning of marks, headers and tags, and with letters that
/// tokens and parts cut.
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

/// The body of an answer between its marks; a mark is taken apart from what surrounds it.
struct Written<'a> {
    header: &'a str,
    body: String,
}

fn written() -> Vec<(&'static str, Conversation, Written<'static>)> {
    let body = PROSE.repeat(400);
    let call = "<atem:function_calls>\n<atem:invoke name=\"files.put\">\n\
                <atem:parameter name=\"body\">"
        .to_owned()
        + &body
        + "</atem:parameter>\n</atem:invoke>\n</atem:function_calls>";
    let growing = Conversation { growing_calls: true, ..conversation(true) };
    let user = |body: &str| Written { header: " to=user", body: body.to_owned() };
    let put = |body: &str| Written { header: " to=files.put", body: body.to_owned() };
    vec![
        ("answer", conversation(false), user(&body)),
        ("answer beside tools", conversation(true), user(&body)),
        ("reasoning", conversation(true), Written { header: " to=self", body }),
        ("call", conversation(true), put(&call)),
        ("growing call", growing, put(&call)),
    ]
}

/// Counts the allocations of `hear`, which takes input `i`, and of the events it makes.
fn check(name: &str, inputs: usize, mut hear: impl FnMut(usize, &mut Vec<ParsedEvent>)) {
    let mut out = Vec::with_capacity(64);
    let mut events = 0;
    let counted = allocation_counter::measure(|| {
        for i in 0..inputs {
            hear(i, &mut out);
            for event in out.drain(..) {
                events += match event {
                    ParsedEvent::Reasoning(_)
                    | ParsedEvent::Content(_)
                    | ParsedEvent::StopText(_) => 1,
                    // An id, a name and arguments.
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
    for (name, conversation, Written { header, body }) in &written() {
        for size in [1, 4, 64, 4096] {
            for stop in stops {
                let mut listener = TextOutputParser::new(conversation, stop);
                listener.push(&format!("{header}<|message|>"), &mut Vec::new());
                let parts: Vec<&[u8]> = body.as_bytes().chunks(size).collect();
                check(&format!("{name}, parts of {size}"), parts.len(), |i, out| {
                    listener.hear_bytes(parts[i], out);
                });
            }
        }
    }
}

#[test]
fn tokens_allocate_what_they_emit() {
    let json = std::fs::read(nano_dir().join("target/tokenizer.json")).expect("is embedded");
    let nano = Tokenizer::new(Vocabulary::HuggingFace(json)).expect("a tokenizer");
    for (name, conversation, Written { header, body }) in &written() {
        let mut listener = TokenOutputParser::new(conversation, &[], Arc::clone(&nano) as Arc<_>);
        let mut tokens = Vec::new();
        nano.encode(header, &mut tokens);
        tokens.extend(nano.special_token("<|message|>"));
        tokens.iter().for_each(|token: &Token| listener.push(*token, &mut Vec::new()));
        tokens.clear();
        nano.encode(body, &mut tokens);
        check(name, tokens.len(), |i, out| listener.push(tokens[i], out));
    }
}
