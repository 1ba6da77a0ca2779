//! What an operator bounds, and what does not depend on the engine's pace.

use muse_core::contract::Verify;
use muse_proto::v1::chat_response::Event;
use muse_proto::v1::generate_service_client::GenerateServiceClient;
use muse_proto::v1::{ChatRequest, GenerateRequest, Limits};
use muse_serve::service::{RequestLimits, ServiceOptions};
use serde_json::json;
use tonic::Code;

use crate::client::{channel, chat_request, http, responses, texts_of};
use crate::fake::{CONTENT, REASONING, Running, ScriptedEngine, answer, app};

const CHAT: &str = "/v1/chat/completions";

async fn with_limits(engine: ScriptedEngine, limits: RequestLimits) -> Running {
    Running::start_with(app(engine), |options| {
        options.service = ServiceOptions { limits, ..ServiceOptions::default() };
    })
    .await
}

#[tokio::test]
async fn an_operator_bounds_choices_tokens_and_priority() {
    let engine = ScriptedEngine::default();
    let record = engine.record.clone();
    let limits = RequestLimits { max_choices: 2, max_tokens: Some(9), max_priority: 5 };
    let server = with_limits(engine, limits).await;
    let body = |more: serde_json::Value| {
        let mut body = json!({ "messages": [{ "role": "user", "content": "Hi" }] });
        body.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
        body.to_string().into_bytes()
    };
    let reply = http(server.http, "POST", CHAT, &body(json!({ "n": 3 }))).await;
    assert_eq!(reply.status, 400, "{}", reply.body);
    let error = &reply.json()["error"];
    assert_eq!(error["param"], "n");
    assert!(error["message"].as_str().is_some_and(|m| m.contains("1 to 2")), "{error}");
    let (_, end) =
        responses(&server.grpc, ChatRequest { choices: Some(3), ..chat_request("Hi") }).await;
    assert_eq!(end.expect_err("too many").code(), Code::InvalidArgument);

    for (requested, given) in
        [(json!({}), 9), (json!({ "max_tokens": 100 }), 9), (json!({ "max_tokens": 4 }), 4)]
    {
        let reply = http(server.http, "POST", CHAT, &body(requested.clone())).await.json();
        assert_eq!(reply["usage"]["completion_tokens"], given, "{requested}");
        assert_eq!(reply["choices"][0]["finish_reason"], "length", "{requested}");
    }
    for priority in [i32::MIN, -1, 0, 5, 6, i32::MAX] {
        let limits = Some(Limits { priority, ..Limits::default() });
        let (_, end) = responses(&server.grpc, ChatRequest { limits, ..chat_request("Hi") }).await;
        end.expect("an answer");
        let mut client = GenerateServiceClient::new(channel(&server.grpc).await);
        let request = GenerateRequest { prompt_ids: vec![1], limits, ..Default::default() };
        let mut stream = client.generate(request).await.expect("a stream").into_inner();
        while stream.message().await.expect("a completion").is_some() {}
        let requests = record.requests.lock().expect("no panic");
        for request in &requests[requests.len() - 2..] {
            assert_eq!(request.priority, priority.min(5));
            assert_eq!(request.max_tokens, Some(9));
        }
    }
}

#[tokio::test]
async fn no_request_has_priority_unless_the_operator_allows_it() {
    let engine = ScriptedEngine::default();
    let record = engine.record.clone();
    let server = Running::start(app(engine)).await;
    let limits = Some(Limits { priority: i32::MAX, ..Limits::default() });
    let (_, end) = responses(&server.grpc, ChatRequest { limits, ..chat_request("Hi") }).await;
    end.expect("an answer");
    assert_eq!(record.requests.lock().expect("no panic")[0].priority, 0);
}

#[tokio::test]
async fn tokens_after_a_stop_text_are_not_counted() {
    let tokens = answer(&[(REASONING, "Hm."), (CONTENT, "one STOP two three four five six")]);
    // A reasoning token, its 3 bytes, a content token, and 8 bytes up to the end of the stop text.
    let expected = 13;
    for step in [0, 1, 3] {
        let step = std::time::Duration::from_millis(step);
        let engine = ScriptedEngine { tokens: tokens.clone(), step, ..ScriptedEngine::default() };
        let server = Running::start(app(engine)).await;
        for logprobs in [None, Some(0)] {
            let limits = Some(Limits { logprobs, ..Limits::default() });
            let request =
                ChatRequest { stop: vec!["STOP".to_owned()], limits, ..chat_request("Hi") };
            let (events, end) = responses(&server.grpc, request).await;
            end.expect("an answer");
            assert_eq!(texts_of(&events, 0).1, "one ");
            let usage = events.iter().find_map(|response| match &response.event {
                Some(Event::Usage(usage)) => Some(usage),
                _ => None,
            });
            assert_eq!(usage.expect("a usage").completion_tokens, expected, "step {step:?}");
            let spelled: Vec<u8> = events
                .iter()
                .filter_map(|response| match &response.event {
                    Some(Event::Text(delta)) => Some(&delta.tokens),
                    _ => None,
                })
                .flatten()
                .flat_map(|token| token.bytes.clone())
                .collect();
            let content = if logprobs.is_some() { "one " } else { "" };
            assert_eq!(spelled, content.as_bytes(), "the tokens are those of the content");
        }
    }
}

#[tokio::test]
async fn draft_tokens_behind_a_stop_text_are_not_counted() {
    let tokens = answer(&[(CONTENT, "one STOP two three four five six")]);
    let verify = |completion, drafted, accepted| Verify { completion, drafted, accepted };
    // The answer ends with its 9th token. Of the second verify 3 more tokens belong to it.
    let verifies = vec![verify(1, 4, 4), verify(6, 15, 12), verify(19, 7, 7)];
    for step in [0, 1, 3] {
        let step = std::time::Duration::from_millis(step);
        let (tokens, verifies) = (tokens.clone(), verifies.clone());
        let engine = ScriptedEngine { tokens, verifies, step, ..ScriptedEngine::default() };
        let server = Running::start(app(engine)).await;
        for choices in [1, 3] {
            let request = ChatRequest {
                stop: vec!["STOP".to_owned()],
                choices: Some(choices),
                ..chat_request("Hi")
            };
            let (events, end) = responses(&server.grpc, request).await;
            end.expect("an answer");
            let usages = events.iter().filter_map(|response| match &response.event {
                Some(Event::Usage(usage)) => Some(usage),
                _ => None,
            });
            let counted =
                usages.map(|u| (u.completion_tokens, u.drafted_tokens, &u.accepted_drafts));
            let expected = (9, 19, &vec![4, 3]);
            assert_eq!(counted.collect::<Vec<_>>(), vec![expected; choices as usize], "{step:?}");
            let body = json!({ "messages": [{ "role": "user", "content": "Hi" }], "stop": "STOP",
                "n": choices });
            let reply = http(server.http, "POST", CHAT, body.to_string().as_bytes()).await.json();
            let details = &reply["usage"]["completion_tokens_details"];
            assert_eq!(reply["usage"]["completion_tokens"], 9 * choices);
            assert_eq!(details["accepted_prediction_tokens"], 7 * choices);
            assert_eq!(details["rejected_prediction_tokens"], 12 * choices);
        }
    }
}
