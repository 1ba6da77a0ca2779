//! Health, reflection and draining.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use tokio_stream::StreamExt;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::{v1, v1alpha};

use crate::client::{channel, chat, chat_request, http, responses, texts_of};
use crate::fake::{CONTENT, HANG, Running, ScriptedEngine, answer, app};

const SERVICES: [&str; 5] = [
    "",
    "muse.v1.ChatService",
    "muse.v1.GenerateService",
    "muse.v1.ModelService",
    "muse.v1.TokenizerService",
];

async fn health(url: &str, service: &str) -> ServingStatus {
    let mut client = HealthClient::new(channel(url).await);
    let request = HealthCheckRequest { service: service.to_owned() };
    client.check(request).await.expect("a known service").into_inner().status()
}

#[tokio::test]
async fn draining_refuses_new_requests_and_finishes_running_ones() {
    let text = "x".repeat(100);
    let tokens = answer(&[(CONTENT, &text)]);
    let script = ScriptedEngine { tokens, ..ScriptedEngine::default() };
    let record = script.record.clone();
    let mut server = Running::start_with(app(script), |options| options.drain = HANG).await;
    for service in SERVICES {
        assert_eq!(health(&server.grpc, service).await, ServingStatus::Serving, "{service:?}");
    }
    // The request goes on only when everything else was tried.
    record.paused.store(true, Ordering::Relaxed);
    let url = server.grpc.clone();
    let running = tokio::spawn(async move { responses(&url, chat_request("Hi")).await });
    while record.running() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.stop();
    for service in SERVICES {
        while health(&server.grpc, service).await == ServingStatus::Serving {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(health(&server.grpc, service).await, ServingStatus::NotServing, "{service:?}");
    }
    let status = chat(&server.grpc).await.chat(chat_request("Hi")).await.expect_err("draining");
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    let body = json!({ "messages": [{ "role": "user", "content": "Hi" }] }).to_string();
    let reply = http(server.http, "POST", "/v1/chat/completions", body.as_bytes()).await;
    assert_eq!(reply.status, 503, "{}", reply.body);
    assert_eq!(http(server.http, "GET", "/health", b"").await.status, 503);
    record.paused.store(false, Ordering::Relaxed);
    let (events, end) = running.await.expect("no panic");
    end.expect("the running request finishes");
    assert_eq!(texts_of(&events, 0).1, text);
    server.task.await.expect("no panic").expect("a clean end");
}

#[tokio::test]
async fn requests_that_outlast_the_drain_end_with_a_status() {
    let script = ScriptedEngine {
        endless: true,
        step: Duration::from_millis(10),
        ..ScriptedEngine::default()
    };
    let record = script.record.clone();
    let mut server =
        Running::start_with(app(script), |options| options.drain = Duration::from_millis(50)).await;
    let mut stream =
        chat(&server.grpc).await.chat(chat_request("Hi")).await.expect("a stream").into_inner();
    stream.message().await.expect("an event");
    server.stop();
    let status = loop {
        match stream.message().await {
            Ok(event) => assert!(event.is_some(), "the stream ended without a status"),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    record.idle().await;
    server.task.await.expect("no panic").expect("a clean end");
}

#[tokio::test]
async fn reflection_lists_the_services_in_both_versions() {
    let server = Running::start(app(ScriptedEngine::default())).await;
    let mut expected = vec!["grpc.health.v1.Health"];
    expected.extend(&SERVICES[1..]);
    let check = |mut names: Vec<String>| {
        names.retain(|name| !name.starts_with("grpc.reflection."));
        names.sort();
        assert_eq!(names, expected);
    };

    let request = v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(v1::server_reflection_request::MessageRequest::ListServices(
            String::new(),
        )),
    };
    let mut client =
        v1::server_reflection_client::ServerReflectionClient::new(channel(&server.grpc).await);
    let replies = client.server_reflection_info(tokio_stream::once(request)).await;
    let reply = replies.expect("a stream").into_inner().next().await.expect("a reply");
    let reply = reply.expect("a reply").message_response;
    let Some(v1::server_reflection_response::MessageResponse::ListServicesResponse(list)) = reply
    else {
        panic!("{reply:?}")
    };
    check(list.service.into_iter().map(|service| service.name).collect());

    let request = v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(v1alpha::server_reflection_request::MessageRequest::ListServices(
            String::new(),
        )),
    };
    let mut client =
        v1alpha::server_reflection_client::ServerReflectionClient::new(channel(&server.grpc).await);
    let replies = client.server_reflection_info(tokio_stream::once(request)).await;
    let reply = replies.expect("a stream").into_inner().next().await.expect("a reply");
    let reply = reply.expect("a reply").message_response;
    let Some(v1alpha::server_reflection_response::MessageResponse::ListServicesResponse(list)) =
        reply
    else {
        panic!("{reply:?}")
    };
    check(list.service.into_iter().map(|service| service.name).collect());
}
