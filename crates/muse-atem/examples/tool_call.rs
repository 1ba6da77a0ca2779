//! Renders the prompt of a request that declares a tool, then parses an answer that calls it, as
//! another engine would stream it.

use muse_atem::muse_core::contract::ParsedEvent;
use muse_atem::{TextOutputParser, render, request::ChatRequest, spell};

const REQUEST: &[u8] = br#"{
    "messages": [{"role": "user", "content": "When is low tide in Brest?"}],
    "tools": [{"type": "function", "function": {
        "name": "tides.low",
        "description": "Times of low tide.",
        "parameters": {"type": "object", "properties": {
            "port": {"type": "string"}, "days": {"type": "integer"}}}}}]
}"#;

const ANSWER: &str = " to=self<|message|>I should look it up.<|eom|>\
    <|start|>assistant to=tides.low<|message|><atem:function_calls>\n\
    <atem:invoke name=\"tides.low\">\n\
    <atem:parameter name=\"port\">Brest</atem:parameter>\n\
    <atem:parameter name=\"days\">2</atem:parameter>\n\
    </atem:invoke>\n</atem:function_calls><|eot|>";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let request = ChatRequest::parse(REQUEST)?;
    println!("{}", spell(&render(&request.conversation)?));
    let mut parser = TextOutputParser::new(&request.conversation, &request.stop);
    let mut events = Vec::new();
    for chunk in ANSWER.as_bytes().chunks(16) {
        parser.push_bytes(chunk, &mut events);
    }
    parser.finish(true, &mut events);
    for event in events {
        match event {
            ParsedEvent::Reasoning(text) => println!("reasoning: {text}"),
            ParsedEvent::Content(text) => println!("content: {text}"),
            ParsedEvent::ToolCall(call) => println!("call: {} {}", call.name, call.arguments),
            ParsedEvent::ToolCallDelta(_) | ParsedEvent::StopText(_) => {}
        }
    }
    Ok(())
}
