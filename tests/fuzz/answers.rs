//! Shared by the targets over answers: conversations with tools, and a summary of events.

use muse_core::contract::{Conversation, ParsedEvent, PromptPart, Tool};

/// A conversation of one of several kinds.
pub fn conversation(shape: u8) -> Conversation {
    let tool = |name: &str, properties: &str| Tool {
        name: name.to_owned(),
        description: String::new(),
        parameters: format!("{{\"type\": \"object\", \"properties\": {{{properties}}}}}"),
        strict: false,
    };
    let tools = vec![
        tool("a", "\"n\": {\"type\": \"integer\"}, \"s\": {\"type\": \"string\"}"),
        tool("b.c", "\"v\": {\"anyOf\": [{\"type\": \"number\"}, {\"type\": \"object\"}]}"),
    ];
    let tail = vec![PromptPart::Text(" to=a".to_owned()), PromptPart::Special("<|message|>")];
    Conversation {
        tools: if shape & 1 == 0 { tools } else { Vec::new() },
        answer_prefix: if shape & 6 == 6 { tail } else { Vec::new() },
        single_call: shape & 8 == 8,
        ..Conversation::default()
    }
}

/// Reasoning, content, calls and stop texts of the events; ids of calls are random and left out.
pub fn summary(all: &[ParsedEvent]) -> (String, String, Vec<(String, String)>, Vec<String>) {
    let mut joined = (String::new(), String::new(), Vec::new(), Vec::new());
    for event in all {
        match event {
            ParsedEvent::Reasoning(text) => joined.0.push_str(text),
            ParsedEvent::Content(text) => joined.1.push_str(text),
            ParsedEvent::ToolCall(call) => joined.2.push((call.name.clone(), call.arguments.clone())),
            ParsedEvent::ToolCallDelta(_) => {}
            ParsedEvent::StopText(text) => joined.3.push(text.clone()),
        }
    }
    joined
}

/// What the bytes from 0xe0 on stand for: the protocol's own words, which random bytes would not
/// spell.
const WORDS: [&str; 32] = [
    "<|start|>",
    "<|message|>",
    "<|eom|>",
    "<|eot|>",
    "<|end_of_text|>",
    "assistant",
    " to=",
    "self",
    "user",
    "a",
    "b.c",
    "b",
    "<atem:function_calls>\n",
    "</atem:function_calls>",
    "<atem:invoke name=\"a\">\n",
    "<atem:invoke name=\"b.c\">\n",
    "<atem:invoke name=\"a.n\">",
    "<atem:invoke name=\"",
    "</atem:invoke>\n",
    "<atem:parameter name=\"n\">",
    "<atem:parameter name=\"s\">",
    "<atem:parameter name=\"v\">",
    "</atem:parameter>\n",
    "\">",
    "\n",
    "1",
    "{\"k\": [1]}",
    "\u{1f9ad}",
    "<",
    "<|",
    " to=a<|message|>",
    "tool a",
];

/// The bytes with those words spelled.
pub fn spelled(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for byte in bytes {
        match byte.checked_sub(0xe0) {
            Some(word) => out.extend_from_slice(WORDS[usize::from(word)].as_bytes()),
            None => out.push(*byte),
        }
    }
    out
}
