//! gRPC: the order of events, what they carry, and leaving early.

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
use muse_serve::service::{Ask, Gate, Refusal, Service};
use tokio_stream::StreamExt;
use tonic::{Code, Request};

use crate::client::{ask, channel, chat, responses, told};
use crate::fake::{CALL, EOT, Running, SAY, Script, THINK, VOCAB, answer, app, bytes};

fn names(events: &[muse_proto::v1::ChatResponse]) -> Vec<&'static str> {
    let mut names: Vec<&str> = events
        .iter()
        .map(|response| match response.event.as_ref().expect("an event") {
            Event::Progress(_) => "progress",
            Event::Reasoning(_) => "reasoning",
            Event::Text(_) => "text",
            Event::ToolCall(_) => "call",
            Event::Usage(_) => "usage",
            Event::Finish(_) => "finish",
        })
        .collect();
    names.dedup();
    names
}

#[tokio::test]
async fn events_come_in_order_and_carry_what_happened() {
    let server = Running::start(app(Script::default())).await;
    let (events, end) = responses(&server.grpc, ask("Hi")).await;
    end.expect("a whole answer");
    assert_eq!(names(&events), ["progress", "reasoning", "text", "usage", "finish"]);
    assert_eq!(told(&events, 0), ("Hm é.".to_owned(), "Grüße!".to_owned()));
    let [.., usage, finish] = events.as_slice() else { panic!("{events:?}") };
    let Some(Event::Usage(usage)) = &usage.event else { panic!("{usage:?}") };
    // <|start|>Hi<|start|>; two channel marks, 6 and 8 bytes, the end of turn.
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
async fn calls_come_whole_and_name_the_finish() {
    let tokens = answer(&[(CALL, r#"{"n":1}"#), (CALL, r#"{"n":2}"#)]);
    let server = Running::start(app(Script { tokens, ..Script::default() })).await;
    let (events, end) = responses(&server.grpc, ask("Hi")).await;
    end.expect("a whole answer");
    assert_eq!(names(&events), ["progress", "call", "usage", "finish"]);
    let calls = events.iter().filter_map(|response| match &response.event {
        Some(Event::ToolCall(call)) => Some((call.id.as_str(), call.arguments_json.as_str())),
        _ => None,
    });
    assert_eq!(calls.collect::<Vec<_>>(), [("call-0", r#"{"n":1}"#), ("call-1", r#"{"n":2}"#)]);
    let Some(Event::Finish(finish)) = &events[events.len() - 1].event else { panic!("{events:?}") };
    assert_eq!(finish.reason(), FinishReason::ToolCalls);
}

#[tokio::test]
async fn a_stop_text_ends_the_sequence_and_stays_out() {
    let script = Script {
        tokens: answer(&[(SAY, "one STOP two")]),
        step: Duration::from_millis(2),
        ..Script::default()
    };
    let seen = script.seen.clone();
    let server = Running::start(app(script)).await;
    let request = ChatRequest { stop: vec!["STOP".to_owned()], ..ask("Hi") };
    let (events, end) = responses(&server.grpc, request).await;
    end.expect("a whole answer");
    assert_eq!(told(&events, 0).1, "one ");
    let Some(Event::Finish(finish)) = &events[events.len() - 1].event else { panic!("{events:?}") };
    assert_eq!(finish.matched, Some(Matched::StopText("STOP".to_owned())));
    seen.idle().await;
}

#[tokio::test]
async fn choices_have_seeds_of_their_own() {
    let script = Script::default();
    let seen = script.seen.clone();
    let server = Running::start(app(script)).await;
    let sampling = Some(Sampling { seed: Some(7), ..Sampling::default() });
    let request = ChatRequest { choices: Some(3), sampling, ..ask("Hi") };
    let (events, end) = responses(&server.grpc, request).await;
    end.expect("whole answers");
    for choice in 0..3 {
        assert_eq!(told(&events, choice).1, "Grüße!", "choice {choice}");
        let own: Vec<_> = events.iter().filter(|r| r.choice == choice).cloned().collect();
        assert_eq!(names(&own), ["progress", "reasoning", "text", "usage", "finish"]);
    }
    let asked = seen.asked.lock().expect("no panic");
    let seeds: Vec<u64> = asked.iter().map(|(sampling, _)| sampling.seed).collect();
    assert_eq!(seeds[0], 7);
    assert!(seeds[1] != 7 && seeds[2] != 7 && seeds[1] != seeds[2], "{seeds:?}");
    assert!(asked.iter().all(|(sampling, _)| sampling.temperature == 0.7), "the model's default");
}

#[tokio::test]
async fn log_probabilities_cover_the_visible_tokens_only() {
    let server = Running::start(app(Script::default())).await;
    let limits = Some(Limits { logprobs: Some(2), ..Limits::default() });
    let (events, end) = responses(&server.grpc, ChatRequest { limits, ..ask("Hi") }).await;
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
    let script = Script { endless: true, step: Duration::from_millis(1), ..Script::default() };
    let seen = script.seen.clone();
    let server = Running::start(app(script)).await;
    let limits = Some(Limits { max_tokens: Some(400), ..Limits::default() });
    let mut stream = chat(&server.grpc)
        .await
        .chat(ChatRequest { limits, ..ask("Hi") })
        .await
        .expect("a stream")
        .into_inner();
    stream.message().await.expect("an event");
    assert_eq!(seen.running(), 1);
    drop(stream);
    seen.idle().await;
    let steps = seen.steps.load(Ordering::Relaxed);
    assert!(steps < 200, "{steps} steps: it ran on after the client left");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off_and_nobody_waits_for_it() {
    let script = Script { endless: true, room: 100_000, ..Script::default() };
    let seen = script.seen.clone();
    let service = Service::new(Arc::new(app(script)), Gate::default());
    let turns = vec![Message::User(vec![Part::Text("Hi".to_owned())])];
    let conversation = Conversation { messages: turns, ..Conversation::default() };
    let mut answer = service.chat(Ask { conversation, ..Ask::default() }).await.expect("a stream");
    // The engine gives up by itself: nothing is read here.
    seen.idle().await;
    assert!(seen.steps.load(Ordering::Relaxed) < 20_000);
    let first = answer.next().await.expect("a refusal");
    assert!(matches!(first, Err(Refusal::SlowClient)), "{first:?}");
    assert!(answer.next().await.is_none());
}

#[tokio::test]
async fn a_deadline_ends_the_call_with_its_status() {
    let script = Script { endless: true, step: Duration::from_millis(2), ..Script::default() };
    let seen = script.seen.clone();
    let server = Running::start(app(script)).await;
    let mut request = Request::new(ask("Hi"));
    // As clients in other languages send it; tonic's own timer would fire on this side as well.
    request.metadata_mut().insert("grpc-timeout", "60m".parse().expect("a value"));
    let mut stream = chat(&server.grpc).await.chat(request).await.expect("a stream").into_inner();
    let status = loop {
        match stream.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the stream ended without a status"),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    seen.idle().await;
}

#[tokio::test]
async fn a_failing_engine_is_told_of() {
    let failure = Error::Device {
        doing: "reading back".to_owned(),
        source: Arc::new(std::io::Error::other("bus error")),
    };
    let tokens = bytes("");
    let server =
        Running::start(app(Script { tokens, failure: Some(failure), ..Script::default() })).await;
    let (_, end) = responses(&server.grpc, ask("Hi")).await;
    let status = end.expect_err("a failure");
    assert_eq!((status.code(), status.message()), (Code::Internal, "reading back: bus error"));
}

#[tokio::test]
async fn ids_are_completed_as_they_are() {
    let tokens = answer(&[(THINK, "a")]);
    let server = Running::start(app(Script { tokens: tokens.clone(), ..Script::default() })).await;
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
    let server = Running::start(app(Script::default())).await;
    let mut client = TokenizerServiceClient::new(channel(&server.grpc).await);
    let request = TokenizeRequest { text: "a<|eot|>".to_owned(), ..TokenizeRequest::default() };
    let ids = client.tokenize(request).await.expect("tokens").into_inner().ids;
    assert_eq!(ids, b"a<|eot|>".map(u32::from), "marks in text stay text");
    let request = DetokenizeRequest { ids: vec![0xc3, EOT.0], ..DetokenizeRequest::default() };
    let text = client.detokenize(request).await.expect("text").into_inner();
    assert_eq!(
        (text.bytes.as_slice(), text.text.as_str()),
        (&b"\xc3<|eot|>"[..], "\u{fffd}<|eot|>")
    );
    let conversation = ask("Hi").conversation;
    let request = RenderPromptRequest { conversation, ..RenderPromptRequest::default() };
    let prompt = client.render_prompt(request).await.expect("a prompt").into_inner();
    assert_eq!(prompt.text, "<|start|>Hi<|start|>");
    assert_eq!(prompt.ids, [256, 72, 105, 256]);
}

#[tokio::test]
async fn models_tell_their_facts() {
    let server = Running::start(app(Script::default())).await;
    let mut client = ModelServiceClient::new(channel(&server.grpc).await);
    let list = client.list_models(ListModelsRequest {}).await.expect("models").into_inner().models;
    let name = "fake".to_owned();
    let one = client.get_model(GetModelRequest { name }).await.expect("a model").into_inner().model;
    assert_eq!(list, [one.expect("a model")]);
    assert_eq!((list[0].vocabulary, list[0].stop_ids.as_slice()), (VOCAB, &[EOT.0][..]));
    assert_eq!(list[0].default_sampling.as_ref().and_then(|s| s.temperature), Some(0.7));
}
