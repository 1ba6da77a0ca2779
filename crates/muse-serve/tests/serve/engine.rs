//! The engine with the embedded checkpoint as clients see it: deadlines, a full queue, and answers
//! that are found in the prefix cache again.

use std::time::Duration;

use muse_proto::v1::generate_response::Event;
use muse_proto::v1::generate_service_client::GenerateServiceClient;
use muse_proto::v1::tokenizer_service_client::TokenizerServiceClient;
use muse_proto::v1::{GenerateRequest, Limits, TokenizeRequest};
use serde_json::{Value, json};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use crate::client::{channel, http};
use crate::fake::HANG;
use crate::nano::nano;

/// A completion that goes on until the positions are used up.
fn endless() -> GenerateRequest {
    GenerateRequest { prompt_ids: vec![896, 918], ignore_model_stop: true, ..Default::default() }
}

/// How many tokens come before a deadline, and the status it ends with.
async fn tokens_before_deadline(
    client: &mut GenerateServiceClient<Channel>,
    milliseconds: u32,
) -> (usize, Status) {
    let mut request = Request::new(endless());
    // As clients in other languages send it; tonic's own timer would fire on this side as well.
    let timeout = format!("{milliseconds}m").parse().expect("a value");
    request.metadata_mut().insert("grpc-timeout", timeout);
    let mut stream = match client.generate(request).await {
        Ok(stream) => stream.into_inner(),
        Err(status) => return (0, status),
    };
    let mut tokens = 0;
    loop {
        match stream.message().await {
            Ok(Some(response)) => {
                if let Some(Event::Tokens(delta)) = response.event {
                    tokens += delta.tokens.len();
                }
            }
            Ok(None) => panic!("{tokens} tokens came before the deadline"),
            Err(status) => return (tokens, status),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_reaches_the_engine() {
    let server = nano().await;
    let mut client = GenerateServiceClient::new(channel(&server.grpc).await);
    // On a busy machine the first token may take longer than a short deadline.
    for milliseconds in (0..8).map(|doublings| 300 << doublings) {
        let (tokens, status) = tokens_before_deadline(&mut client, milliseconds).await;
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
        if tokens > 0 {
            return;
        }
    }
    panic!("no token came before any deadline");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_refused_with_a_retry_delay() {
    let server = nano().await;
    let mut client = GenerateServiceClient::new(channel(&server.grpc).await);
    let mut streams = Vec::new();
    let status = loop {
        // Eight run and 64 wait.
        assert!(streams.len() < 200, "nobody was refused");
        match client.generate(endless()).await {
            Ok(stream) => streams.push(stream),
            Err(status) => break status,
        }
    };
    assert!(streams.len() >= 72, "{} were taken", streams.len());
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    let retry = status.get_error_details().retry_info().expect("a hint").retry_delay;
    assert_eq!(retry, Some(Duration::from_secs(1)));
    drop(streams);
    // Requests are accepted again once the disconnects are noticed.
    let limits = Some(Limits { max_tokens: Some(3), ..Limits::default() });
    for _ in 0..HANG.as_millis() / 20 {
        if client.generate(GenerateRequest { limits, ..endless() }).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("still refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_sent_again_is_found_in_the_prefix_cache() {
    let server = nano().await;
    let mut tokenizer = TokenizerServiceClient::new(channel(&server.grpc).await);
    let question = json!({ "role": "user", "content": "What is 4 + 5?" });
    let chat = |messages: Vec<Value>, bias: &Value| {
        let body = json!({ "messages": messages, "logit_bias": bias, "temperature": 0 });
        let address = server.http;
        async move {
            let body = body.to_string();
            let reply = http(address, "POST", "/v1/chat/completions", body.as_bytes()).await;
            assert_eq!(reply.status, 200, "{}", reply.body);
            reply.json()
        }
    };
    // The tokens of the free answer are banned, so that the next one has the same text in others.
    let free = chat(vec![question.clone()], &json!({})).await;
    let message = &free["choices"][0]["message"];
    let mut bias = json!({});
    for part in ["reasoning_content", "content"] {
        let text = message[part].as_str().expect("a text").to_owned();
        let request = TokenizeRequest { text, ..TokenizeRequest::default() };
        for id in tokenizer.tokenize(request).await.expect("tokens").into_inner().ids {
            let ids = muse_proto::v1::DetokenizeRequest { ids: vec![id], ..Default::default() };
            let spelled = tokenizer.detokenize(ids).await.expect("bytes").into_inner().bytes;
            if spelled.len() > 1 {
                bias[id.to_string()] = json!(-100);
            }
        }
    }
    assert!(bias.as_object().expect("a map").len() > 2, "{bias}");
    let first = chat(vec![question.clone()], &bias).await;
    assert_eq!(first["choices"][0]["finish_reason"], "stop", "{first}");
    let answer = first["choices"][0]["message"].clone();
    let next = json!({ "role": "user", "content": "And 5 + 6?" });
    let second = chat(vec![question, answer, next], &json!({})).await;
    let count = |reply: &Value, key: &str| reply["usage"][key].as_u64().expect("a number");
    let positions = count(&first, "prompt_tokens") + count(&first, "completion_tokens");
    let cached = &second["usage"]["prompt_tokens_details"]["cached_tokens"];
    // All positions of the first turn; its last token was never run.
    assert_eq!(cached.as_u64(), Some(positions - 1), "{second}");
}
