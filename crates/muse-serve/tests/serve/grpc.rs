//! gRPC: the order and content of events, and disconnects.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use muse_core::Error;
use muse_core::contract::{Conversation, Message, Part};
use muse_proto::v1::chat_response::Event;
use muse_proto::v1::finish::Matched;
use muse_proto::v1::generate_service_client::GenerateServiceClient;
use muse_proto::v1::model_service_client::ModelServiceClient;
use muse_proto::v1::tokenizer_service_client::TokenizerServiceClient;
use muse_proto::v1::{
    ChatRequest, DetokenizeRequest, FinishReason, GenerateRequest, GetModelRequest, Limits,
    ListModelsRequest, RenderPromptRequest, Sampling, TokenizeRequest, generate_response,
};
use muse_serve::service::{ChatJob, DrainGuard, Service, ServiceError};
use tokio_stream::StreamExt;
use tonic::{Code, Request};

use crate::client::{channel, chat, chat_request, responses, texts_of};
use crate::fake::{
    CALL, CONTENT, EOT, REASONING, Running, ScriptedEngine, VOCAB, answer, app, bytes,
};

fn event_names(events: &[muse_proto::v1::ChatResponse]) -> Vec<&'static str> {
    let mut names: Vec<&str> = events
        .iter()
        .map(|response| match response.event.as_ref().expect("an event") {
            Event::Progress(_) => "progress",
            Event::Reasoning(_) => "reasoning",
            Event::Text(_) => "text",
            Event::ToolCall(_) => "call",
            Event::ToolCallDelta(_) => "call delta",
            Event::Usage(_) => "usage",
            Event::Finish(_) => "finish",
        })
        .collect();
    names.dedup();
    names
}

#[tokio::test]
async fn events_come_in_order_with_usage_and_finish() {
    let server = Running::start(app(ScriptedEngine::default())).await;
    let (events, end) = responses(&server.grpc, chat_request("Hi")).await;
    end.expect("a whole answer");
    assert_eq!(event_names(&events), ["progress", "reasoning", "text", "usage", "finish"]);
    assert_eq!(texts_of(&events, 0), ("Hm é.".to_owned(), "Grüße!".to_owned()));
    let [.., usage, finish] = events.as_slice() else { panic!("{events:?}") };
    let Some(Event::Usage(usage)) = &usage.event else { panic!("{usage:?}") };
    // <|start|>Hi<|start|>; two channel tokens, 6 and 8 bytes, the end of the turn.
    assert_eq!((usage.prompt_tokens, usage.cached_tokens), (4, 3));
    assert_eq!((usage.completion_tokens, usage.reasoning_tokens), (17, 6));
    assert_eq!((usage.drafted_tokens, usage.accepted_drafts.as_slice()), (30, &[7, 2][..]));
    let timings = usage.timings.expect("timings");
    // 17 tokens in 2 s; 1 prompt token that was not cached in 0.25 s; 16 tokens in 1.25 s.
    assert_eq!(timings.tokens_per_second, 8.5);
    assert_eq!(timings.prefill_tokens_per_second, 4.0);
    assert_eq!(timings.ar_decode_tokens_per_second, 12.8);
    assert_eq!(timings.accepted_drafts_per_verify, 4.5);
    let Some(Event::Finish(finish)) = &finish.event else { panic!("{finish:?}") };
    assert_eq!(finish.reason(), FinishReason::Stop);
    assert_eq!(finish.matched, Some(Matched::StopId(EOT.0)));
}

#[tokio::test]
async fn tool_calls_come_whole_and_set_the_finish_reason() {
    let tokens = answer(&[(CALL, r#"{"n":1}"#), (CALL, r#"{"n":2}"#)]);
    let server = Running::start(app(ScriptedEngine { tokens, ..ScriptedEngine::default() })).await;
    let (events, end) = responses(&server.grpc, chat_request("Hi")).await;
    end.expect("a whole answer");
    assert_eq!(event_names(&events), ["progress", "call", "usage", "finish"]);
    let calls = events.iter().filter_map(|response| match &response.event {
        Some(Event::ToolCall(call)) => Some((call.id.as_str(), call.arguments_json.as_str())),
        _ => None,
    });
    assert_eq!(calls.collect::<Vec<_>>(), [("call-0", r#"{"n":1}"#), ("call-1", r#"{"n":2}"#)]);
    let Some(Event::Finish(finish)) = &events[events.len() - 1].event else { panic!("{events:?}") };
    assert_eq!(finish.reason(), FinishReason::ToolCalls);
}

#[tokio::test]
async fn a_stop_text_ends_the_sequence_and_is_left_out() {
    let script = ScriptedEngine {
        tokens: answer(&[(CONTENT, "one STOP two")]),
        step: Duration::from_millis(2),
        ..ScriptedEngine::default()
    };
    let record = script.record.clone();
    let server = Running::start(app(script)).await;
    let request = ChatRequest { stop: vec!["STOP".to_owned()], ..chat_request("Hi") };
    let (events, end) = responses(&server.grpc, request).await;
    end.expect("a whole answer");
    assert_eq!(texts_of(&events, 0).1, "one ");
    let Some(Event::Finish(finish)) = &events[events.len() - 1].event else { panic!("{events:?}") };
    assert_eq!(finish.matched, Some(Matched::StopText("STOP".to_owned())));
    record.idle().await;
}

#[tokio::test]
async fn choices_have_seeds_of_their_own() {
    let script = ScriptedEngine::default();
    let record = script.record.clone();
    let server = Running::start(app(script)).await;
    let sampling = Some(Sampling { seed: Some(7), ..Sampling::default() });
    let request = ChatRequest { choices: Some(3), sampling, ..chat_request("Hi") };
    let (events, end) = responses(&server.grpc, request).await;
    end.expect("whole answers");
    for choice in 0..3 {
        assert_eq!(texts_of(&events, choice).1, "Grüße!", "choice {choice}");
        let own: Vec<_> = events.iter().filter(|r| r.choice == choice).cloned().collect();
        assert_eq!(event_names(&own), ["progress", "reasoning", "text", "usage", "finish"]);
    }
    let requests = record.requests.lock().expect("no panic");
    let seeds: Vec<u64> = requests.iter().map(|request| request.sampling.seed).collect();
    assert_eq!(seeds[0], 7);
    assert!(seeds[1] != 7 && seeds[2] != 7 && seeds[1] != seeds[2], "{seeds:?}");
    assert!(
        requests.iter().all(|request| request.sampling.temperature == 0.7),
        "the model's default"
    );
    let groups: Vec<_> = requests.iter().map(|request| request.group).collect();
    assert!(groups[0].is_some() && groups == [groups[0]; 3], "one group: {groups:?}");
}

#[tokio::test]
async fn logprobs_cover_the_visible_tokens_only() {
    let server = Running::start(app(ScriptedEngine::default())).await;
    let limits = Some(Limits { logprobs: Some(2), ..Limits::default() });
    let (events, end) = responses(&server.grpc, ChatRequest { limits, ..chat_request("Hi") }).await;
    end.expect("a whole answer");
    let mut spelled = Vec::new();
    for response in &events {
        match &response.event {
            Some(Event::Text(delta)) => spelled.extend(delta.tokens.clone()),
            Some(Event::Reasoning(delta)) => assert_eq!(delta.tokens, []),
            _ => {}
        }
    }
    let text: Vec<u8> = spelled.iter().flat_map(|token| token.bytes.clone()).collect();
    assert_eq!(text, "Grüße!".as_bytes());
    assert!(spelled.iter().all(|token| token.logprob == Some(-0.5) && token.top.len() == 2));
}

#[tokio::test]
async fn dropping_the_stream_cancels_the_sequence() {
    let script = ScriptedEngine {
        endless: true,
        step: Duration::from_millis(1),
        max_positions: 1_000_000,
        ..ScriptedEngine::default()
    };
    let record = script.record.clone();
    let server = Running::start(app(script)).await;
    let mut stream =
        chat(&server.grpc).await.chat(chat_request("Hi")).await.expect("a stream").into_inner();
    stream.message().await.expect("an event");
    assert_eq!(record.running(), 1);
    drop(stream);
    record.idle().await;
    let steps = record.steps.load(Ordering::Relaxed);
    assert!(steps < 900_000, "{steps} steps: it went on after the disconnect");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cancelled_without_blocking_the_engine() {
    let script =
        ScriptedEngine { endless: true, max_positions: 100_000, ..ScriptedEngine::default() };
    let record = script.record.clone();
    let service = Service::new(Arc::new(app(script)), DrainGuard::default());
    let messages = vec![Message::User(vec![Part::Text("Hi".to_owned())])];
    let conversation = Conversation { messages, ..Conversation::default() };
    let mut events =
        service.chat(ChatJob { conversation, ..ChatJob::default() }).await.expect("a stream");
    // The engine cancels the request: no event is read here.
    record.idle().await;
    assert!(record.steps.load(Ordering::Relaxed) < 20_000);
    let first = events.next().await.expect("an error");
    assert!(matches!(first, Err(ServiceError::SlowClient)), "{first:?}");
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn a_deadline_ends_the_call_with_its_status() {
    let script = ScriptedEngine {
        endless: true,
        step: Duration::from_millis(2),
        ..ScriptedEngine::default()
    };
    let record = script.record.clone();
    let server = Running::start(app(script)).await;
    let mut request = Request::new(chat_request("Hi"));
    // As clients in other languages send it; tonic's own timer would fire on this side as well.
    request.metadata_mut().insert("grpc-timeout", "60m".parse().expect("a value"));
    let mut client = chat(&server.grpc).await;
    let ended = async {
        // On a slow machine the deadline may be over before the stream begins.
        let mut stream = client.chat(request).await?.into_inner();
        while stream.message().await?.is_some() {}
        Ok(())
    };
    let status: tonic::Status = ended.await.expect_err("the stream ends with a status");
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    record.idle().await;
}

#[tokio::test]
async fn an_engine_error_ends_the_stream_with_its_status() {
    let failure = Error::Device {
        doing: "reading back".to_owned(),
        source: Arc::new(std::io::Error::other("bus error")),
    };
    let tokens = bytes("");
    let server = Running::start(app(ScriptedEngine {
        tokens,
        failure: Some(failure),
        ..ScriptedEngine::default()
    }))
    .await;
    let (_, end) = responses(&server.grpc, chat_request("Hi")).await;
    let status = end.expect_err("a failure");
    assert_eq!((status.code(), status.message()), (Code::Internal, "reading back: bus error"));
}

#[tokio::test]
async fn token_ids_are_completed_unchanged() {
    let tokens = answer(&[(REASONING, "a")]);
    let server =
        Running::start(app(ScriptedEngine { tokens: tokens.clone(), ..ScriptedEngine::default() }))
            .await;
    let mut client = GenerateServiceClient::new(channel(&server.grpc).await);
    let request = GenerateRequest { prompt_ids: vec![1, 2], ..GenerateRequest::default() };
    let mut stream = client.generate(request).await.expect("a stream").into_inner();
    let (mut ids, mut order) = (Vec::new(), Vec::new());
    while let Some(response) = stream.message().await.expect("an event") {
        match response.event.expect("an event") {
            generate_response::Event::Progress(_) => order.push("progress"),
            generate_response::Event::Tokens(delta) => {
                order.push("tokens");
                ids.extend(delta.tokens.iter().map(|token| token.id));
            }
            generate_response::Event::Usage(usage) => {
                order.push("usage");
                assert_eq!(usage.completion_tokens as usize, tokens.len());
            }
            generate_response::Event::Finish(finish) => {
                order.push("finish");
                assert_eq!(finish.matched, Some(Matched::StopId(EOT.0)));
            }
        }
    }
    order.dedup();
    assert_eq!(order, ["progress", "tokens", "usage", "finish"]);
    assert_eq!(ids, tokens.iter().map(|token| token.0).collect::<Vec<_>>());
}

#[tokio::test]
async fn text_becomes_tokens_and_text_again() {
    let server = Running::start(app(ScriptedEngine::default())).await;
    let mut client = TokenizerServiceClient::new(channel(&server.grpc).await);
    let request = TokenizeRequest { text: "a<|eot|>".to_owned(), ..TokenizeRequest::default() };
    let ids = client.tokenize(request).await.expect("tokens").into_inner().ids;
    assert_eq!(ids, b"a<|eot|>".map(u32::from), "special tokens in text stay text");
    let request = DetokenizeRequest { ids: vec![0xc3, EOT.0], ..DetokenizeRequest::default() };
    let text = client.detokenize(request).await.expect("text").into_inner();
    assert_eq!(
        (text.bytes.as_slice(), text.text.as_str()),
        (&b"\xc3<|eot|>"[..], "\u{fffd}<|eot|>")
    );
    let conversation = chat_request("Hi").conversation;
    let request = RenderPromptRequest { conversation, ..RenderPromptRequest::default() };
    let prompt = client.render_prompt(request).await.expect("a prompt").into_inner();
    assert_eq!(prompt.text, "<|start|>Hi<|start|>");
    assert_eq!(prompt.ids, [256, 72, 105, 256]);
}

#[tokio::test]
async fn models_report_their_properties() {
    let server = Running::start(app(ScriptedEngine::default())).await;
    let mut client = ModelServiceClient::new(channel(&server.grpc).await);
    let list = client.list_models(ListModelsRequest {}).await.expect("models").into_inner().models;
    let name = "fake".to_owned();
    let one = client.get_model(GetModelRequest { name }).await.expect("a model").into_inner().model;
    assert_eq!(list, [one.expect("a model")]);
    assert_eq!((list[0].vocabulary, list[0].stop_ids.as_slice()), (VOCAB, &[EOT.0][..]));
    assert_eq!(list[0].default_sampling.as_ref().and_then(|s| s.temperature), Some(0.7));
}
