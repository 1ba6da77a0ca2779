//! HTTP: whole answers, the order of chunks, and disconnects.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use crate::client::{http, send};
use crate::fake::{CALL, CONTENT, Running, ScriptedEngine, answer, app};

const CHAT: &str = "/v1/chat/completions";

fn body(more: Value) -> Vec<u8> {
    let mut body = json!({ "model": "fake", "messages": [{ "role": "user", "content": "Hi" }] });
    if let (Value::Object(body), Value::Object(more)) = (&mut body, more) {
        body.extend(more);
    }
    body.to_string().into_bytes()
}

/// The chunks of a stream, and its last event.
fn chunks(events: &[&str]) -> (Vec<Value>, String) {
    let (last, chunks) = events.split_last().expect("events");
    let parse = |text: &&str| serde_json::from_str(text).expect("JSON");
    (chunks.iter().map(parse).collect(), (*last).to_owned())
}

#[tokio::test]
async fn a_whole_answer() {
    let server = Running::start(app(ScriptedEngine::default())).await;
    let reply = http(server.http, "POST", CHAT, &body(json!({}))).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let body = reply.json();
    assert!(body["id"].as_str().is_some_and(|id| id.starts_with("chatcmpl-")), "{body}");
    assert_eq!((&body["object"], &body["model"]), (&json!("chat.completion"), &json!("fake")));
    assert_eq!(
        body["choices"],
        json!([{
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Grüße!",
                "refusal": null,
                "reasoning_content": "Hm é.",
            },
            "logprobs": null,
            "finish_reason": "stop",
        }])
    );
    assert_eq!(
        body["usage"],
        json!({
            "prompt_tokens": 4,
            "completion_tokens": 17,
            "total_tokens": 21,
            "prompt_tokens_details": { "cached_tokens": 3 },
            "completion_tokens_details": {
                "reasoning_tokens": 6,
                "accepted_prediction_tokens": 9,
                "rejected_prediction_tokens": 21,
            },
        })
    );
    assert_eq!(
        body["timings"],
        json!({
            "queued_seconds": 0.5,
            "prefill_seconds": 0.25,
            "decode_seconds": 1.25,
            "tokens_per_second": 8.5,
            "prefill_tokens_per_second": 4.0,
            "ar_decode_tokens_per_second": 12.8,
            "accepted_drafts_per_verify": 4.5,
        })
    );
}

#[tokio::test]
async fn chunks_come_in_the_order_clients_expect() {
    let server = Running::start(app(ScriptedEngine::default())).await;
    let options = json!({ "stream": true, "stream_options": { "include_usage": true } });
    let reply = http(server.http, "POST", CHAT, &body(options)).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert!(reply.head.contains("content-type: text/event-stream"), "{}", reply.head);
    let (chunks, last) = chunks(&reply.events());
    assert_eq!(last, "[DONE]");
    let (usage, chunks) = chunks.split_last().expect("chunks");
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["total_tokens"], 21);
    assert_eq!(usage["timings"]["tokens_per_second"], 8.5);
    let (finish, chunks) = chunks.split_last().expect("chunks");
    assert_eq!(
        finish["choices"],
        json!([{ "index": 0, "delta": {}, "logprobs": null, "finish_reason": "stop" }])
    );
    let (role, deltas) = chunks.split_first().expect("chunks");
    assert_eq!(role["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
    let (mut reasoning, mut content) = (String::new(), String::new());
    for chunk in deltas {
        let delta = &chunk["choices"][0]["delta"];
        match (&delta["reasoning_content"], &delta["content"]) {
            (Value::String(text), Value::Null) => {
                assert!(content.is_empty(), "reasoning comes first");
                reasoning.push_str(text);
            }
            (Value::Null, Value::String(text)) => content.push_str(text),
            _ => panic!("{chunk}"),
        }
    }
    assert_eq!((reasoning.as_str(), content.as_str()), ("Hm é.", "Grüße!"));
    for chunk in chunks.iter().chain([finish, usage]) {
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!(chunk["id"], usage["id"]);
    }
    for chunk in chunks.iter().chain([finish]) {
        assert_eq!(chunk.get("usage"), Some(&Value::Null), "null until the last chunk");
    }
}

#[tokio::test]
async fn without_include_usage_no_chunk_names_it() {
    let server = Running::start(app(ScriptedEngine::default())).await;
    let reply = http(server.http, "POST", CHAT, &body(json!({ "stream": true }))).await;
    let (chunks, last) = chunks(&reply.events());
    assert_eq!(last, "[DONE]");
    assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()));
    assert_eq!(chunks[chunks.len() - 1]["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn calls_are_counted_and_leave_no_content() {
    let tokens = answer(&[(CALL, r#"{"n":1}"#), (CALL, r#"{"n":2}"#)]);
    let server = Running::start(app(ScriptedEngine { tokens, ..ScriptedEngine::default() })).await;
    let reply = http(server.http, "POST", CHAT, &body(json!({}))).await.json();
    let message = &reply["choices"][0]["message"];
    assert_eq!(message["content"], Value::Null);
    let call = |n: usize| {
        let function = json!({ "name": "count", "arguments": format!(r#"{{"n":{}}}"#, n + 1) });
        json!({ "id": format!("call-{n}"), "type": "function", "function": function })
    };
    assert_eq!(message["tool_calls"], json!([call(0), call(1)]));
    assert_eq!(reply["choices"][0]["finish_reason"], "tool_calls");

    let reply = http(server.http, "POST", CHAT, &body(json!({ "stream": true }))).await;
    let (chunks, _) = chunks(&reply.events());
    let calls = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"].get("tool_calls"));
    let mut expected = [call(0), call(1)];
    for (index, call) in expected.iter_mut().enumerate() {
        call["index"] = json!(index);
    }
    assert_eq!(
        calls.flat_map(|list| list.as_array().expect("a list")).collect::<Vec<_>>(),
        [&expected[0], &expected[1]]
    );
    assert_eq!(chunks[chunks.len() - 1]["choices"][0]["finish_reason"], "tool_calls");
}

#[tokio::test]
async fn logprobs_have_the_tokens_of_the_content() {
    let tokens = answer(&[(CONTENT, "né")]);
    let server = Running::start(app(ScriptedEngine { tokens, ..ScriptedEngine::default() })).await;
    let options = json!({ "logprobs": true, "top_logprobs": 1 });
    let reply = http(server.http, "POST", CHAT, &body(options)).await.json();
    let entry = |bytes: u8, token: &str| {
        let top = json!({ "token": token, "logprob": -0.5, "bytes": [bytes] });
        json!({ "token": token, "logprob": -0.5, "bytes": [bytes], "top_logprobs": [top] })
    };
    let expected = [entry(b'n', "n"), entry(0xc3, "\u{fffd}"), entry(0xa9, "\u{fffd}")];
    assert_eq!(reply["choices"][0]["logprobs"]["content"], json!(expected));
}

#[tokio::test]
async fn choices_are_numbered_and_the_prompt_counts_once() {
    let server = Running::start(app(ScriptedEngine::default())).await;
    let reply = http(server.http, "POST", CHAT, &body(json!({ "n": 2, "max_tokens": 9 }))).await;
    let body = reply.json();
    let choices = body["choices"].as_array().expect("choices");
    assert_eq!(choices.len(), 2);
    for (index, choice) in choices.iter().enumerate() {
        assert_eq!(choice["index"], index);
        // A special token, six bytes, a special token, one byte.
        assert_eq!(choice["message"]["content"], "G");
        assert_eq!(choice["finish_reason"], "length");
    }
    let usage = &body["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(4), &json!(18)));
}

#[tokio::test]
async fn max_tokens_beyond_the_positions_left_means_all_of_them() {
    let script = ScriptedEngine {
        endless: true,
        tokens: answer(&[(CONTENT, "a")])[..2].to_vec(),
        ..ScriptedEngine::default()
    };
    let server = Running::start(app(script)).await;
    let reply = http(server.http, "POST", CHAT, &body(json!({ "max_tokens": 1_000_000 }))).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let body = reply.json();
    assert_eq!(body["choices"][0]["finish_reason"], "length");
    assert_eq!(body["usage"]["total_tokens"], 512);
}

#[tokio::test]
async fn a_disconnect_cancels_the_sequence() {
    for stream in [true, false] {
        let script = ScriptedEngine {
            endless: true,
            step: Duration::from_millis(1),
            max_positions: 1_000_000,
            ..ScriptedEngine::default()
        };
        let record = script.record.clone();
        let server = Running::start(app(script)).await;
        let mut connection =
            send(server.http, "POST", CHAT, &body(json!({ "stream": stream }))).await;
        if stream {
            connection.read_exact(&mut [0; 64]).await.expect("the head of a reply");
        }
        while record.steps.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(connection);
        record.idle().await;
        let steps = record.steps.load(Ordering::Relaxed);
        assert!(steps < 900_000, "{steps} steps: it went on after the disconnect");
    }
}

#[tokio::test]
async fn models_and_health() {
    let server = Running::start(app(ScriptedEngine::default())).await;
    let list = http(server.http, "GET", "/v1/models", b"").await.json();
    let one = http(server.http, "GET", "/v1/models/fake", b"").await.json();
    assert_eq!(list, json!({ "object": "list", "data": [one] }));
    assert_eq!(
        one,
        json!({
            "id": "fake",
            "object": "model",
            "created": 1_700_000_000,
            "owned_by": "muse",
            "context_length": 512,
        })
    );
    let health = http(server.http, "GET", "/health", b"").await;
    assert_eq!((health.status, health.json()), (200, json!({ "status": "ok" })));
}
