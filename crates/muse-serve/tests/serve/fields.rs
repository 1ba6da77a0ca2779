//! Each spelling of a setting, over both protocols: its effect, or the exact error.

use muse_core::contract::Token;
use muse_proto::v1::{ChatRequest, Limits, Sampling};
use serde_json::{Value, json};
use tonic::Code;
use tonic_types::StatusExt;

use crate::client::{chat_request, http, responses};
use crate::fake::{EOT, Record, Recorded, Running, ScriptedEngine, app};

const CHAT: &str = "/v1/chat/completions";

async fn post(server: &Running, more: &Value) -> crate::client::Reply {
    let mut body = json!({ "messages": [{ "role": "user", "content": "Hi" }] });
    body.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
    http(server.http, "POST", CHAT, body.to_string().as_bytes()).await
}

/// Checks that `fields` are refused for `param` with a message that has `words`.
async fn refused(server: &Running, fields: Value, param: &str, words: &str) {
    let reply = post(server, &fields).await;
    assert_eq!(reply.status, 400, "{fields}: {}", reply.body);
    let error = &reply.json()["error"];
    assert_eq!(error["param"], param, "{fields}: {error}");
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains(words), "{fields}: {message:?} lacks {words:?}");
}

/// The same for a gRPC request.
async fn refused_by_grpc(server: &Running, request: ChatRequest, field: &str, words: &str) {
    let (_, end) = responses(&server.grpc, request).await;
    let status = end.expect_err(field);
    assert_eq!(status.code(), Code::InvalidArgument, "{field}: {status:?}");
    let details = status.get_error_details();
    let violation = &details.bad_request().expect("violations").field_violations[0];
    assert_eq!(violation.field, field, "{status:?}");
    assert!(violation.description.contains(words), "{violation:?} lacks {words:?}");
}

/// What the engine was asked for since the last call.
fn recorded(record: &Record) -> Vec<Recorded> {
    std::mem::take(&mut *record.requests.lock().expect("no panic"))
}

#[tokio::test]
async fn settings_of_http_reach_the_engine_or_are_refused() {
    type Check = fn(&[Recorded]) -> bool;
    let engine = ScriptedEngine::default();
    let record = engine.record.clone();
    let server = Running::start(app(engine)).await;
    let honoured: [(Value, Check); 23] = [
        (json!({ "top_p": 0 }), |r| r[0].sampling.top_p == f32::MIN_POSITIVE),
        (json!({ "top_p": 1.0 }), |r| r[0].sampling.top_p == 1.0),
        (json!({ "temperature": 100 }), |r| r[0].sampling.temperature == 100.0),
        (json!({ "temperature": 0 }), |r| r[0].sampling.temperature == 0.0),
        (json!({ "top_k": 5.0 }), |r| r[0].sampling.top_k == 5),
        (json!({ "top_k": -1 }), |r| r[0].sampling.top_k == 0),
        (json!({ "seed": -2 }), |r| r[0].sampling.seed == u64::MAX - 1),
        (json!({ "seed": 7.0 }), |r| r[0].sampling.seed == 7),
        (json!({ "seed": -1, "n": 2 }), |r| r[0].sampling.seed != r[1].sampling.seed),
        (json!({ "max_tokens": 9.0 }), |r| r[0].max_tokens == Some(9)),
        (json!({ "max_tokens": -1 }), |r| r[0].max_tokens.is_none()),
        (json!({ "max_completion_tokens": -1 }), |r| r[0].max_tokens.is_none()),
        (json!({ "n_predict": -1 }), |r| r[0].max_tokens.is_none()),
        (json!({ "n": 2.0 }), |r| r.len() == 2),
        (json!({ "n": 16 }), |r| r.len() == 16),
        (json!({ "stop": "" }), |r| r[0].stop == [EOT]),
        (json!({ "stop": ["", "x"] }), |r| r[0].stop == [EOT]),
        (json!({ "stop_token_ids": [5.0] }), |r| r[0].stop == [EOT, Token(5)]),
        (json!({ "ignore_eos": true }), |r| r[0].stop.is_empty()),
        (json!({ "ignore_eos": true, "stop_token_ids": [5] }), |r| r[0].stop == [Token(5)]),
        (json!({ "ignore_eos": false }), |r| r[0].stop == [EOT]),
        (json!({ "min_tokens": 4.0, "max_tokens": 4 }), |r| r[0].min_tokens == 4),
        (json!({ "min_tokens": 0 }), |r| r[0].min_tokens == 0),
    ];
    for (fields, check) in honoured {
        let reply = post(&server, &fields).await;
        assert_eq!(reply.status, 200, "{fields}: {}", reply.body);
        assert!(check(&recorded(&record)), "{fields} has another effect");
    }
    for (fields, param, words) in [
        (json!({ "top_p": -0.1 }), "top_p", "expected 0 to 1"),
        (json!({ "top_p": 1.1 }), "top_p", "expected 0 to 1"),
        (json!({ "temperature": 100.5 }), "temperature", "expected 0 to 100"),
        (json!({ "temperature": -1 }), "temperature", "expected 0 to 100"),
        (json!({ "seed": 1.5 }), "seed", "1.5"),
        (json!({ "max_tokens": -2 }), "max_tokens", "is -2"),
        (json!({ "max_tokens": 0 }), "max_tokens", "0"),
        (json!({ "max_tokens": 9.5 }), "max_tokens", "9.5"),
        (json!({ "n": 0 }), "n", "0"),
        (json!({ "n": 17 }), "n", "1 to 16"),
        (json!({ "n": 1.5 }), "n", "1.5"),
        (json!({ "stop": [7] }), "stop[0]", "string"),
        (json!({ "stop_token_ids": [-1] }), "stop_token_ids[0]", "token id"),
        (json!({ "stop_token_ids": [5000] }), "stop_token_ids", "5000"),
        (json!({ "min_tokens": 5, "max_tokens": 4 }), "min_tokens", "4"),
        (json!({ "min_tokens": -1 }), "min_tokens", "-1"),
        (json!({ "ignore_eos": "yes" }), "ignore_eos", "boolean"),
    ] {
        refused(&server, fields, param, words).await;
    }
    assert!(recorded(&record).is_empty(), "a refused request reached the engine");
}

#[tokio::test]
async fn settings_of_grpc_reach_the_engine_or_are_refused_alike() {
    type Check = fn(&[Recorded]) -> bool;
    let engine = ScriptedEngine::default();
    let record = engine.record.clone();
    let server = Running::start(app(engine)).await;
    let sampling =
        |sampling: Sampling| ChatRequest { sampling: Some(sampling), ..chat_request("Hi") };
    let top_p = |top_p: f32| sampling(Sampling { top_p: Some(top_p), ..Sampling::default() });
    let temperature = |it: f32| sampling(Sampling { temperature: Some(it), ..Sampling::default() });
    let limits = |max_tokens: Option<u32>, min_tokens: u32| ChatRequest {
        limits: Some(Limits { max_tokens, min_tokens, ..Limits::default() }),
        ..chat_request("Hi")
    };
    let choices = |count: u32| ChatRequest { choices: Some(count), ..chat_request("Hi") };
    let ends = |stop_ids: &[u32], ignore_model_stop: bool| ChatRequest {
        stop_ids: stop_ids.to_vec(),
        ignore_model_stop,
        ..chat_request("Hi")
    };
    let honoured: [(ChatRequest, Check); 9] = [
        (top_p(0.0), |r| r[0].sampling.top_p == f32::MIN_POSITIVE),
        (top_p(1.0), |r| r[0].sampling.top_p == 1.0),
        (temperature(100.0), |r| r[0].sampling.temperature == 100.0),
        (choices(16), |r| r.len() == 16),
        (limits(None, 0), |r| r[0].max_tokens.is_none() && r[0].min_tokens == 0),
        (limits(Some(4), 4), |r| r[0].max_tokens == Some(4) && r[0].min_tokens == 4),
        (ends(&[5], false), |r| r[0].stop == [EOT, Token(5)]),
        (ends(&[5], true), |r| r[0].stop == [Token(5)]),
        (ends(&[], true), |r| r[0].stop.is_empty()),
    ];
    for (request, check) in honoured {
        let (_, end) = responses(&server.grpc, request.clone()).await;
        end.unwrap_or_else(|status| panic!("{request:?}: {status:?}"));
        assert!(check(&recorded(&record)), "{request:?} has another effect");
    }
    for (request, field, words) in [
        (top_p(-0.1), "sampling.top_p", "from 0 to 1"),
        (top_p(1.1), "sampling.top_p", "from 0 to 1"),
        (temperature(100.5), "sampling.temperature", "from 0 to 100"),
        (temperature(-1.0), "sampling.temperature", "from 0 to 100"),
        (choices(0), "choices", "1 to 16"),
        (choices(17), "choices", "1 to 16"),
        (limits(Some(4), 5), "limits.min_tokens", "4"),
        (limits(Some(0), 0), "limits.max_tokens", "at least 1"),
        (ends(&[5000], false), "stop_ids", "5000"),
    ] {
        refused_by_grpc(&server, request, field, words).await;
    }
    assert!(recorded(&record).is_empty(), "a refused request reached the engine");
}

#[tokio::test]
async fn what_is_not_supported_is_refused_by_name_unless_it_is_neutral() {
    let server = Running::start(app(ScriptedEngine::default())).await;
    for (fields, param) in [
        (json!({ "best_of": 2 }), "best_of"),
        (json!({ "use_beam_search": true }), "use_beam_search"),
        (json!({ "allowed_token_ids": [5] }), "allowed_token_ids"),
        (json!({ "prompt": "x" }), "prompt"),
        (json!({ "modalities": ["audio"] }), "modalities"),
        (json!({ "guided_whitespace_pattern": " " }), "guided_whitespace_pattern"),
        (json!({ "structural_tag": "{}" }), "structural_tag"),
        (json!({ "reasoning": { "exclude": true } }), "reasoning.exclude"),
    ] {
        refused(&server, fields, param, "not supported").await;
    }
    for neutral in [
        json!({ "best_of": 1, "use_beam_search": false, "allowed_token_ids": null }),
        json!({ "prompt": "", "modalities": ["text"], "mirostat": 0.0 }),
        json!({ "structural_tag": null, "reasoning": { "exclude": false } }),
    ] {
        let reply = post(&server, &neutral).await;
        assert_eq!(reply.status, 200, "{neutral}: {}", reply.body);
    }
}
