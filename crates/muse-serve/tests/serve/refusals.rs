//! Requests that are refused: status, field, and a message that says what to do.

use std::time::Duration;

use muse_proto::v1::chat_service_client::ChatServiceClient;
use muse_proto::v1::generate_service_client::GenerateServiceClient;
use muse_proto::v1::{
    ChatRequest, Conversation, GenerateRequest, Limits, Role, Sampling, TokenBias, Tool, ToolCall,
    ToolChoice, tool_choice,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use crate::client::{RawCodec, channel, chat, chat_request, http, message, responses};
use crate::fake::{CONTENT, HANG, Running, ScriptedEngine, answer, app};

const CHAT: &str = "/v1/chat/completions";

fn user_message(text: &str) -> Value {
    json!({ "messages": [{ "role": "user", "content": text }] })
}

#[tokio::test]
async fn http_refuses_with_status_field_and_advice() {
    let server = Running::start(app(ScriptedEngine::default())).await;
    let with = |more: Value| {
        let mut body = user_message("Hi");
        if let (Value::Object(body), Value::Object(more)) = (&mut body, more) {
            body.extend(more);
        }
        body.to_string().into_bytes()
    };
    let image =
        json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,AAAA" } });
    let long = user_message(&"x".repeat(600)).to_string().into_bytes();
    let (wrong, unable) = ("invalid_value", "unsupported");
    let too_long = "context_length_exceeded";
    let wizard = with(json!({ "messages": [{ "role": "wizard", "content": "Hi" }] }));
    let picture = with(json!({ "messages": [{ "role": "user", "content": [image] }] }));
    let grammar = with(json!({ "response_format": { "type": "json_object" } }));
    let check =
        async |body: Vec<u8>, status: u16, param: Option<&str>, code: &str, advice: &str| {
            let shown = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
            let reply = http(server.http, "POST", CHAT, &body).await;
            assert_eq!(reply.status, status, "{shown}: {}", reply.body);
            let error = &reply.json()["error"];
            assert_eq!((&error["param"], &error["code"]), (&json!(param), &json!(code)), "{shown}");
            assert_eq!(error["type"], "invalid_request_error", "{shown}");
            let message = error["message"].as_str().expect("a message");
            assert!(message.contains(advice), "{shown}: {message:?} lacks {advice:?}");
        };
    check(wizard, 400, Some("messages[0].role"), wrong, "wizard").await;
    check(with(json!({ "messages": [] })), 400, Some("messages"), wrong, "at least one").await;
    check(with(json!({ "max_tokens": -2 })), 400, Some("max_tokens"), wrong, "-2").await;
    check(with(json!({ "max_tokens": 0 })), 400, Some("max_tokens"), wrong, "1").await;
    check(with(json!({ "temperature": -0.5 })), 400, Some("temperature"), wrong, "-0.5").await;
    check(with(json!({ "top_p": 1.5 })), 400, Some("top_p"), wrong, "0 to 1").await;
    check(with(json!({ "best_of": 4 })), 400, Some("best_of"), wrong, "not supported").await;
    check(with(json!({ "n": 99 })), 400, Some("n"), wrong, "1 to 16").await;
    check(with(json!({ "messages": [7] })), 400, Some("messages[0]"), wrong, "messages[0]: is a")
        .await;
    check(b"[]".to_vec(), 400, None, wrong, "found a list, expected an object").await;
    let endless = user_message(&"x".repeat(300_000)).to_string().into_bytes();
    check(endless, 400, Some("messages"), too_long, "300000 bytes").await;
    check(long, 400, Some("messages"), too_long, "602 tokens and the model has room for 512").await;
    check(with(json!({ "model": "x" })), 404, Some("model"), "model_not_found", "\"fake\"").await;
    check(b"{\"messages\": [}".to_vec(), 400, None, wrong, "byte 14").await;
    check(b"{\"messages\": \"\xff\"}".to_vec(), 400, None, wrong, "not UTF-8 from byte 14").await;
    check(picture, 501, None, unable, "send text").await;
    check(grammar, 501, None, unable, "ask in the prompt").await;
}

#[tokio::test]
async fn http_answers_json_to_unknown_urls_methods_and_sizes() {
    let server = Running::start_with(app(ScriptedEngine::default()), |options| {
        options.max_message_bytes = 1000;
    })
    .await;
    let large = user_message(&"x".repeat(2000)).to_string().into_bytes();
    let check = async |method: &str, path: &str, status: u16, code: &str, advice: &str| {
        let reply = http(server.http, method, path, &large).await;
        assert_eq!(reply.status, status, "{method} {path}: {}", reply.body);
        let error = &reply.json()["error"];
        assert_eq!(error["code"], code, "{method} {path}");
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains(advice), "{method} {path}: {message:?}");
    };
    check("POST", CHAT, 413, "body_too_large", "1000 bytes").await;
    check("GET", CHAT, 405, "method_not_allowed", "use POST").await;
    check("POST", "/v1/models", 405, "method_not_allowed", "use GET").await;
    check("GET", "/v2/nothing", 404, "unknown_url", "/v1/chat/completions").await;
    check("GET", "/v1/models/%ff", 400, "invalid_request", "UTF-8").await;
    check("GET", "/v1/models/other", 404, "model_not_found", "fake").await;
}

#[tokio::test]
async fn grpc_refuses_with_code_field_and_advice() {
    let server = Running::start(app(ScriptedEngine::default())).await;
    let conversation = |conversation: Conversation| ChatRequest {
        conversation: Some(conversation),
        ..ChatRequest::default()
    };
    let limits = |limits: Limits| ChatRequest { limits: Some(limits), ..chat_request("Hi") };
    let sampling =
        |sampling: Sampling| ChatRequest { sampling: Some(sampling), ..chat_request("Hi") };
    let mut wizard = message(Role::User, "Hi");
    wizard.role = 9;
    let mut thinking = message(Role::User, "Hi");
    thinking.reasoning = "Hm".to_owned();
    let named = Conversation {
        messages: vec![message(Role::User, "Hi")],
        tools: vec![Tool { name: "count".to_owned(), ..Tool::default() }],
        tool_choice: Some(ToolChoice {
            choice: Some(tool_choice::Choice::Name("ghost".to_owned())),
        }),
        ..Conversation::default()
    };
    let mut twice = message(Role::Assistant, "");
    let (id, name) = ("1".to_owned(), "count".to_owned());
    twice.tool_calls = vec![ToolCall { id, name, ..ToolCall::default() }; 2];
    let dated = |date: &str| {
        conversation(Conversation {
            messages: vec![message(Role::User, "Hi")],
            current_date: date.to_owned(),
            ..Conversation::default()
        })
    };
    let tools = |names: &[&str]| {
        let tool = |name: &&str| Tool { name: (*name).to_owned(), ..Tool::default() };
        let tools = names.iter().map(tool).collect();
        let messages = vec![message(Role::User, "Hi")];
        conversation(Conversation { messages, tools, ..Conversation::default() })
    };
    let table = [
        (tools(&["bad\"name>"]), "conversation.tools[0].name", "A-Z"),
        (tools(&["count", "count"]), "conversation.tools[1].name", "rename"),
        (ChatRequest::default(), "conversation.messages", "at least one"),
        (
            conversation(Conversation { messages: vec![wizard], ..Conversation::default() }),
            "conversation.messages[0].role",
            "ROLE_USER",
        ),
        (
            conversation(Conversation { messages: vec![thinking], ..Conversation::default() }),
            "conversation.messages[0].reasoning",
            "ROLE_ASSISTANT",
        ),
        (conversation(named), "conversation.tool_choice.name", "declare it"),
        (dated("tomorrow"), "conversation.current_date", "YYYY-MM-DD"),
        (dated("2026-13-01"), "conversation.current_date", "2026-13-01"),
        (dated("2026-00-10"), "conversation.current_date", "2026-00-10"),
        (
            conversation(Conversation { messages: vec![twice], ..Conversation::default() }),
            "conversation.messages[0].tool_calls[1].id",
            "its own",
        ),
        (dated("2023-02-29"), "conversation.current_date", "2023-02-29"),
        (dated("2024-02-30"), "conversation.current_date", "2024-02-30"),
        (limits(Limits { max_tokens: Some(0), ..Limits::default() }), "limits.max_tokens", "1"),
        (limits(Limits { logprobs: Some(21), ..Limits::default() }), "limits.logprobs", "20"),
        (
            sampling(Sampling { temperature: Some(f32::NAN), ..Sampling::default() }),
            "sampling.temperature",
            "from 0",
        ),
        (
            sampling(Sampling { top_p: Some(1.5), ..Sampling::default() }),
            "sampling.top_p",
            "from 0 to 1",
        ),
        (
            sampling(Sampling {
                bias: vec![TokenBias { id: 1, bias: 1.0 }; 5000],
                ..Sampling::default()
            }),
            "sampling.bias",
            "found 5000; give at most 4096",
        ),
        (ChatRequest { choices: Some(0), ..chat_request("Hi") }, "choices", "1 to 16"),
        (ChatRequest { stop: vec![String::new()], ..chat_request("Hi") }, "stop", "1 to 1024"),
    ];
    for (request, field, advice) in table {
        let (_, end) = responses(&server.grpc, request).await;
        let status = end.expect_err(field);
        assert_eq!(status.code(), Code::InvalidArgument, "{field}: {status:?}");
        let details = status.get_error_details();
        let violations = &details.bad_request().expect("field violations").field_violations;
        assert_eq!(violations.len(), 1, "{field}");
        assert_eq!(violations[0].field, field);
        assert!(violations[0].description.contains(advice), "{field}: {violations:?}");
        assert!(status.message().contains(advice), "{field}: {}", status.message());
    }
}

fn reason(status: &Status) -> String {
    status.get_error_details().error_info().expect("a reason").reason.clone()
}

#[tokio::test]
async fn grpc_reasons_for_prompts_models_and_tokens() {
    let server = Running::start(app(ScriptedEngine::default())).await;
    let (_, end) = responses(&server.grpc, chat_request(&"x".repeat(600))).await;
    let status = end.expect_err("too long");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(reason(&status), "CONTEXT_LENGTH_EXCEEDED");
    assert!(status.message().contains("602") && status.message().contains("512"), "{status:?}");

    let (_, end) =
        responses(&server.grpc, ChatRequest { model: "other".to_owned(), ..chat_request("Hi") })
            .await;
    let status = end.expect_err("another model");
    assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, "MODEL_NOT_FOUND"));
    let details = status.get_error_details();
    let resource = details.resource_info().expect("a resource");
    assert_eq!(
        (resource.resource_type.as_str(), resource.resource_name.as_str()),
        ("model", "other")
    );

    let mut client = GenerateServiceClient::new(channel(&server.grpc).await);
    let request = GenerateRequest { prompt_ids: vec![5000], ..GenerateRequest::default() };
    let status = client.generate(request).await.expect_err("an unknown token");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("prompt_ids: found token 5000"), "{}", status.message());
}

#[tokio::test]
async fn a_malformed_grpc_message_is_an_invalid_argument() {
    // A conversation, a message, a part and its text by their field numbers; the text is not UTF-8.
    let body = [0x12, 8, 0x0a, 6, 0x12, 4, 0x0a, 2, b'a', 0xff].to_vec();
    let server = Running::start(app(ScriptedEngine::default())).await;
    let mut client = tonic::client::Grpc::new(channel(&server.grpc).await);
    client.ready().await.expect("a server");
    let path = "/muse.v1.ChatService/Chat".parse().expect("a path");
    let reply = client.server_streaming(Request::new(body), path, RawCodec).await;
    let status = reply.expect_err("not a message");
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(status.message().contains("text in UTF-8"), "{}", status.message());
}

#[tokio::test]
async fn grpc_bounds_the_size_of_messages() {
    let server = Running::start_with(app(ScriptedEngine::default()), |options| {
        options.max_message_bytes = 1000
    })
    .await;
    let (_, end) = responses(&server.grpc, chat_request(&"x".repeat(2000))).await;
    let status = end.expect_err("too large");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert!(status.message().contains("1000"), "{}", status.message());
    assert!(status.message().contains("send less"), "{}", status.message());
}

#[tokio::test]
async fn unknown_grpc_methods_are_named() {
    let server = Running::start(app(ScriptedEngine::default())).await;
    for path in ["/muse.v1.ChatService/Sing", "/other.v1.Service/Chat"] {
        let mut client = tonic::client::Grpc::new(channel(&server.grpc).await);
        client.ready().await.expect("a server");
        let known = path.parse().expect("a path");
        let reply = client.unary(Request::new(Vec::new()), known, RawCodec).await;
        let status = reply.expect_err("an unknown method");
        assert_eq!(status.code(), Code::Unimplemented, "{status:?}");
        assert!(status.message().starts_with(path), "{}", status.message());
    }
}

#[tokio::test]
async fn http_refuses_bodies_by_their_headers() {
    let server = Running::start(app(ScriptedEngine::default())).await;
    for (head, answer) in [
        ("Content-Length: 99999999999", "HTTP/1.1 413 "),
        ("Content-Encoding: gzip\r\nContent-Length: 9", "HTTP/1.1 415 "),
    ] {
        let mut socket = TcpStream::connect(server.http).await.expect("a server");
        let head = format!("POST {CHAT} HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n");
        socket.write_all(head.as_bytes()).await.expect("a listening server");
        let mut start = vec![0; answer.len()];
        socket.read_exact(&mut start).await.expect("an answer to the head alone");
        assert_eq!(String::from_utf8_lossy(&start), answer);
    }
}

#[tokio::test]
async fn idle_connections_are_closed() {
    let server = Running::start_with(app(ScriptedEngine::default()), |options| {
        options.keep_alive = Duration::from_millis(200);
    })
    .await;
    let grpc = server.grpc.strip_prefix("http://").expect("an address").parse().expect("one");
    for (address, start) in [
        (server.http, ""),
        (server.http, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-"),
        (grpc, ""),
        (grpc, "PRI * HTTP/2.0\r\n"),
    ] {
        let mut socket = TcpStream::connect(address).await.expect("a server");
        socket.write_all(start.as_bytes()).await.expect("a listening server");
        let mut reply = Vec::new();
        let ended = tokio::time::timeout(HANG, socket.read_to_end(&mut reply));
        // An error means that the connection was reset, which ends it as well.
        let _ = ended.await.expect("the server closes the connection");
    }
    // The timeout does not apply while a request is answered.
    let script = ScriptedEngine {
        tokens: answer(&[(CONTENT, "slow")]),
        step: Duration::from_millis(450),
        ..ScriptedEngine::default()
    };
    let timeout = Duration::from_secs(2);
    assert!(script.step * script.tokens.len() as u32 > timeout, "the answer takes longer");
    let server = Running::start_with(app(script), |options| options.keep_alive = timeout).await;
    let reply = http(server.http, "POST", CHAT, user_message("Hi").to_string().as_bytes()).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(reply.json()["choices"][0]["message"]["content"], "slow");
}

#[tokio::test]
async fn a_model_without_a_tokenizer_serves_token_ids_only() {
    let mut model = app(ScriptedEngine::default());
    (model.tokenizer, model.template) = (None, None);
    let server = Running::start(model).await;
    let (_, end) = responses(&server.grpc, chat_request("Hi")).await;
    let status = end.expect_err("no text");
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::FailedPrecondition, "NO_VOCABULARY")
    );
    let reply = http(server.http, "POST", CHAT, user_message("Hi").to_string().as_bytes()).await;
    assert_eq!(reply.status, 400, "{}", reply.body);
    let mut client = GenerateServiceClient::new(channel(&server.grpc).await);
    let request = GenerateRequest { prompt_ids: vec![1], ..GenerateRequest::default() };
    let mut stream = client.generate(request).await.expect("ids are enough").into_inner();
    while stream.message().await.expect("a completion").is_some() {}
}

#[tokio::test]
async fn a_full_queue_has_a_retry_delay() {
    let script = ScriptedEngine {
        endless: true,
        step: Duration::from_millis(5),
        max_positions: 1_000_000,
        max_num_seqs: 1,
        ..ScriptedEngine::default()
    };
    let record = script.record.clone();
    let server = Running::start(app(script)).await;
    let mut client: ChatServiceClient<_> = chat(&server.grpc).await;
    let first = client.chat(chat_request("Hi")).await.expect("the first request runs");
    let status = client.chat(chat_request("Hi")).await.expect_err("the queue is full");
    assert_eq!(status.code(), Code::ResourceExhausted);
    let details = status.get_error_details();
    let retry = details.retry_info().expect("a retry delay").retry_delay;
    assert_eq!(retry, Some(Duration::from_secs(1)));
    assert_eq!(details.quota_failure().expect("a quota").violations.len(), 1);

    let reply = http(server.http, "POST", CHAT, user_message("Hi").to_string().as_bytes()).await;
    assert_eq!(reply.status, 429, "{}", reply.body);
    assert!(reply.head.contains("retry-after: 1"), "{}", reply.head);
    assert_eq!(reply.json()["error"]["type"], "rate_limit_error");
    drop(first);
    record.idle().await;
}
