//! A conversation with the embedded checkpoint that calls a tool: prompt, tokens, parsed events,
//! the tool's result, and the answer. `cargo run --release -p muse-tests --example tool_call`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use muse_atem::request::ChatRequest;
use muse_atem::{Template, Tokenizer, encode};
use muse_core::Result;
use muse_core::contract::{
    Conversation, Event, FinishReason, KvType, Message, ParsedEvent, Part, PromptTemplate, Request,
    Sampling, Segment, SeqId, ToolCall,
};
use muse_core::engine::{EngineCore, EngineOptions};
use muse_cpu::Cpu;
use muse_tests::chats::STOP;
use muse_tests::checkpoint::{Checkpoint, fast_cpu};
use muse_tests::run::Pair;

const REQUEST: &[u8] = br#"{
    "messages": [{"role": "user", "content": "What is the weather in Oslo?"}],
    "tools": [{"type": "function", "function": {
        "name": "get_weather",
        "description": "Get the weather for a city.",
        "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "City name"},
            "days": {"type": "integer", "description": "Number of days"}}}}}]
}"#;

fn main() -> Result<()> {
    let nano = Checkpoint::nano()?;
    let vocabulary = nano.target.vocabulary()?.expect("muse-nano has a vocabulary");
    let tokenizer = Tokenizer::new(vocabulary)?;
    let template = Template::new(tokenizer.clone());
    let pair = Pair::new(fast_cpu(), &*nano.target, Some(&*nano.drafter), KvType::Bf16, &[])?;
    let mut engine = pair.into_engine(&EngineOptions::default())?;

    let mut conversation = ChatRequest::parse(REQUEST)?.conversation;
    conversation.current_date = Some("2026-08-14".into());
    let calls = answer(&mut engine, &template, &tokenizer, &conversation, SeqId(1))?;
    conversation.messages.push(Message::Assistant {
        reasoning: None,
        content: Vec::new(),
        calls: calls.clone(),
        recipient: None,
        end_turn: None,
    });
    for call in calls {
        let result = r#"{"temperature": 7, "sky": "rain"}"#;
        println!("result    {result}");
        conversation.messages.push(Message::Tool {
            name: Some(call.name),
            call_id: Some(call.id),
            content: vec![Part::Text(result.into())],
        });
    }
    answer(&mut engine, &template, &tokenizer, &conversation, SeqId(2))?;
    Ok(())
}

/// Generates the next message, prints what is parsed of it, and returns its calls.
fn answer(
    engine: &mut EngineCore<Cpu>,
    template: &Template,
    tokenizer: &Tokenizer,
    conversation: &Conversation,
    seq: SeqId,
) -> Result<Vec<ToolCall>> {
    let prompt = encode(&template.render(conversation)?, tokenizer)?;
    println!("prompt    {} tokens", prompt.len());
    let request = Request {
        prompt: vec![Segment::Tokens(prompt)],
        sampling: Sampling::default(),
        stop: STOP.to_vec(),
        max_tokens: Some(200),
        max_draft: None,
        logprobs: None,
        constraint: None,
        deadline: None,
        ..Request::default()
    };
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&events);
    let sink = Box::new(move |event| {
        sink.lock().expect("no panic while it was held").push(event);
        std::ops::ControlFlow::Continue(())
    });
    engine.submit(seq, request, sink, Duration::ZERO)?;
    while engine.step(&|| Duration::ZERO)? {}

    let mut parser = template.output_parser(conversation, &[]);
    let mut parsed = Vec::new();
    for event in events.lock().expect("no panic while it was held").drain(..) {
        match event {
            Event::Token(sampled) => parser.push(sampled.token, &mut parsed),
            Event::Done(done) => {
                println!("usage     {:?}", done.usage);
                parser.finish(matches!(done.reason, FinishReason::Stop(_)), &mut parsed);
            }
            Event::Prefill { .. } => {}
        }
    }
    let (mut reasoning, mut content, mut calls) = (String::new(), String::new(), Vec::new());
    for event in parsed {
        match event {
            ParsedEvent::Reasoning(text) => reasoning += &text,
            ParsedEvent::Content(text) => content += &text,
            ParsedEvent::ToolCall(call) => calls.push(call),
            ParsedEvent::ToolCallDelta(_) | ParsedEvent::StopText(_) => {}
        }
    }
    println!("reasoning {reasoning}\ncontent   {content}");
    for call in &calls {
        println!("call      {} {}", call.name, call.arguments);
    }
    Ok(calls)
}
