//! Tool calls in deltas, as an operator sets for all requests and a request for itself, and calls that
//! a limit cuts.

use muse_proto::v1::chat_response::Event;
use muse_proto::v1::{
    ChatRequest, Conversation, Finish, FinishReason, Limits, Role, Sampling, Tool,
};
use serde_json::{Value, json};

use crate::client::{http, message, responses};
use crate::fake::Running;
use crate::nano::nano_with;

const DATE: &str = "2026-08-14";
const QUESTION: &str = "What is the weather in Oslo?";

async fn server(growing: bool) -> Running {
    nano_with(|options| options.service.growing_tool_calls = growing).await
}

fn parameters() -> Value {
    let city = json!({ "type": "string", "description": "City name" });
    json!({ "type": "object", "properties": { "city": city }, "required": ["city"] })
}

fn grpc_request(growing: Option<bool>, max_tokens: Option<u32>) -> ChatRequest {
    let tool = Tool {
        name: "get_weather".to_owned(),
        description: "Get the weather for a city.".to_owned(),
        parameters_json: parameters().to_string(),
        ..Tool::default()
    };
    ChatRequest {
        conversation: Some(Conversation {
            messages: vec![message(Role::User, QUESTION)],
            tools: vec![tool],
            current_date: DATE.to_owned(),
            ..Conversation::default()
        }),
        sampling: Some(Sampling { temperature: Some(0.0), ..Sampling::default() }),
        limits: Some(Limits { max_tokens, ..Limits::default() }),
        growing_tool_calls: growing,
        ..ChatRequest::default()
    }
}

/// What came of a call: its deltas joined and their number, the whole calls, the end, and the tokens
/// of the completion.
#[derive(Debug, Default)]
struct Calls {
    joined: String,
    deltas: usize,
    whole: Vec<String>,
    finish: Finish,
    completion: u32,
}

async fn over_grpc(server: &Running, growing: Option<bool>, max_tokens: Option<u32>) -> Calls {
    let (events, end) = responses(&server.grpc, grpc_request(growing, max_tokens)).await;
    end.expect("an answer");
    let mut calls = Calls::default();
    for response in events {
        match response.event.expect("an event") {
            Event::ToolCallDelta(delta) => {
                calls.joined.push_str(&delta.arguments_json);
                calls.deltas += 1;
            }
            Event::ToolCall(call) => calls.whole.push(call.arguments_json),
            Event::Usage(usage) => calls.completion = usage.completion_tokens,
            Event::Finish(finish) => calls.finish = finish,
            _ => {}
        }
    }
    calls
}

fn body(stream_options: &Value, max_tokens: Option<u32>) -> Value {
    let function = json!({ "name": "get_weather", "description": "Get the weather for a city.",
        "parameters": parameters() });
    json!({ "messages": [{ "role": "user", "content": QUESTION }], "temperature": 0,
        "tools": [{ "type": "function", "function": function }], "current_date": DATE,
        "stream": true, "stream_options": stream_options, "max_tokens": max_tokens })
}

/// The arguments of the call in each chunk that has some, and the last choice.
async fn over_http(server: &Running, body: &Value) -> (Vec<String>, Value) {
    let reply =
        http(server.http, "POST", "/v1/chat/completions", body.to_string().as_bytes()).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let (mut arguments, mut last) = (Vec::new(), Value::Null);
    for event in reply.events() {
        let Ok(chunk) = serde_json::from_str::<Value>(event) else { continue };
        let Some(choice) = chunk["choices"].get(0) else { continue };
        if let Some(call) = choice["delta"]["tool_calls"].get(0) {
            let more = call["function"]["arguments"].as_str().expect("a text");
            arguments.push(more.to_owned());
        }
        last = choice.clone();
    }
    (arguments, last)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_sets_growing_calls_for_requests_that_do_not_say() {
    for by_default in [false, true] {
        let server = server(by_default).await;
        for request in [None, Some(false), Some(true)] {
            let grows = request.unwrap_or(by_default);
            let calls = over_grpc(&server, request, None).await;
            assert_eq!(calls.deltas > 1, grows, "{by_default} {request:?}: {calls:?}");
            assert_eq!(calls.deltas == 0, !grows, "{by_default} {request:?}: {calls:?}");
            let [whole] = calls.whole.as_slice() else { panic!("{calls:?}") };
            let parsed: Value = serde_json::from_str(whole).expect("JSON");
            assert_eq!(parsed, json!({ "city": "Oslo" }));
            assert_eq!(calls.finish.reason(), FinishReason::ToolCalls);
            assert_eq!(calls.finish.incomplete_tool_call, None);
            let options = match request {
                None => json!({}),
                Some(growing) => json!({ "growing_tool_calls": growing }),
            };
            let (arguments, last) = over_http(&server, &body(&options, None)).await;
            assert_eq!(arguments.len() > 1, grows, "{by_default} {request:?}: {arguments:?}");
            let parsed: Value = serde_json::from_str(&arguments.concat()).expect("JSON");
            assert_eq!(parsed, json!({ "city": "Oslo" }), "{by_default} {request:?}");
            assert_eq!(last["finish_reason"], "tool_calls");
            assert_eq!(last.get("incomplete_tool_call"), None, "{last}");
            if grows {
                assert_eq!(&calls.joined, whole, "the deltas are the whole call");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_a_limit_cuts_keeps_its_finish_and_is_named() {
    let server = server(true).await;
    let whole = over_grpc(&server, None, None).await;
    let mut cut = None;
    // Each limit up to the length of the answer: before, within and behind the call.
    for max_tokens in 1..whole.completion {
        let calls = over_grpc(&server, None, Some(max_tokens)).await;
        let (arguments, last) = over_http(&server, &body(&json!({}), Some(max_tokens))).await;
        assert_eq!(calls.finish.reason(), FinishReason::Length, "{max_tokens}: {calls:?}");
        assert_eq!(last["finish_reason"], "length", "{max_tokens}: {last}");
        assert_eq!(arguments.is_empty(), calls.deltas == 0, "{max_tokens}");
        let begun = calls.deltas > 0 && calls.whole.is_empty();
        let named = calls.finish.incomplete_tool_call.as_ref();
        assert_eq!(named.is_some(), begun, "{max_tokens}: {calls:?}");
        assert_eq!(last.get("incomplete_tool_call").is_some(), begun, "{max_tokens}: {last}");
        let Some(named) = named else { continue };
        cut = Some(max_tokens);
        assert_eq!((named.name.as_str(), named.arguments_json.as_str()), ("get_weather", ""));
        let incomplete = &last["incomplete_tool_call"];
        assert_eq!(incomplete["name"], "get_weather");
        assert!(incomplete["id"].is_string() && !named.id.is_empty(), "{incomplete}");
        assert!(whole.joined.starts_with(&calls.joined), "{max_tokens}: {calls:?}");
    }
    assert!(cut.is_some(), "no limit fell within the call");
    // Whole answers have no deltas, so that text that is no call stays content.
    let mut body = body(&json!({}), cut);
    body["stream"] = json!(false);
    body.as_object_mut().expect("an object").remove("stream_options");
    let reply =
        http(server.http, "POST", "/v1/chat/completions", body.to_string().as_bytes()).await;
    let choice = &reply.json()["choices"][0];
    assert_eq!(choice["finish_reason"], "length", "{}", reply.body);
    assert_eq!(choice["message"].get("tool_calls"), None, "{}", reply.body);
}
