//! Ids of requests, and the log line of each.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use muse_proto::v1::ChatRequest;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tonic::Request;
use tonic_types::StatusExt;
use tracing_subscriber::fmt::MakeWriter;

use crate::client::{chat, chat_request, http, http_with, responses};
use crate::fake::{Running, ScriptedEngine, app};

const CHAT: &str = "/v1/chat/completions";

fn hello() -> Vec<u8> {
    json!({ "messages": [{ "role": "user", "content": "A secret" }] }).to_string().into_bytes()
}

#[tokio::test]
async fn each_reply_has_the_id_of_its_request() {
    let server = Running::start(app(ScriptedEngine::default())).await;
    let id_of = |head: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix("x-request-id: "));
        line.unwrap_or_else(|| panic!("no id: {head}")).to_owned()
    };
    let own = http_with(server.http, "POST", CHAT, "X-Request-Id: abc-123\r\n", &hello()).await;
    assert_eq!((own.status, id_of(&own.head).as_str()), (200, "abc-123"));
    let first = id_of(&http(server.http, "POST", CHAT, &hello()).await.head);
    let second = id_of(&http(server.http, "GET", "/health", b"").await.head);
    assert!(first.starts_with("req-") && first != second, "{first} {second}");
    let long = format!("X-Request-Id: {}\r\n", "x".repeat(129));
    let refused = http_with(server.http, "POST", CHAT, &long, b"{}").await;
    let id = id_of(&refused.head);
    assert!(id.starts_with("req-"), "{id}");
    assert_eq!(refused.json()["error"]["request_id"], json!(id));
    let unknown = http(server.http, "GET", "/nothing", b"").await;
    assert_eq!(unknown.json()["error"]["request_id"], json!(id_of(&unknown.head)));

    let mut request = Request::new(chat_request("Hi"));
    request.metadata_mut().insert("x-request-id", "own".parse().expect("a value"));
    let mut stream = chat(&server.grpc).await.chat(request).await.expect("a stream");
    assert_eq!(stream.metadata().get("x-request-id").expect("an id"), "own");
    while let Some(response) = stream.get_mut().message().await.expect("a response") {
        assert_eq!(response.id, "own");
    }
    let (_, end) = responses(&server.grpc, ChatRequest::default()).await;
    let status = end.expect_err("no messages");
    let id = status.metadata().get("x-request-id").expect("an id").to_str().expect("ASCII");
    let details = status.get_error_details();
    assert_eq!(details.request_info().expect("an id").request_id, id);
}

/// Collects what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Log {
    /// The line of the request with an id, once it is there.
    async fn line(&self, id: &str) -> String {
        for _ in 0..500 {
            let text = String::from_utf8(self.0.lock().expect("no panic").clone()).expect("UTF-8");
            if let Some(line) = text.lines().find(|line| line.contains(id)) {
                assert_eq!(text.matches(id).count(), 1, "one line each: {text}");
                assert!(!line.contains("secret") && !line.contains("Gr"), "{line}");
                return line.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no line of {id}");
    }
}

#[tokio::test]
async fn each_request_has_one_line_in_the_log() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
    // One of a thread would miss lines that another thread's test logs first: tracing remembers that
    // nobody listened there.
    tracing::subscriber::set_global_default(subscriber).expect("no other test sets one");
    let engine = ScriptedEngine { step: Duration::from_millis(1), ..ScriptedEngine::default() };
    let server = Running::start(app(engine)).await;
    let check = async |id: &str, words: &[&str]| {
        let line = log.line(id).await;
        for word in words {
            assert!(line.contains(word), "{word} is missing: {line}");
        }
        line
    };
    http_with(server.http, "POST", CHAT, "X-Request-Id: log-whole\r\n", &hello()).await;
    let whole = check(
        "log-whole",
        &[
            "POST /v1/chat/completions",
            "status=\"200\"",
            "prompt_tokens=10",
            "cached_tokens=3",
            "completion_tokens=17",
            "tokens_per_second=8.5",
            "first_token_ms=",
            "duration_ms=",
        ],
    )
    .await;
    assert!(!whole.contains("disconnected") && !whole.contains("error"), "{whole}");
    http_with(server.http, "POST", CHAT, "X-Request-Id: log-wrong\r\n", b"{").await;
    let wrong = check("log-wrong", &["status=\"400\"", "error=\"invalid_value\""]).await;
    assert!(!wrong.contains("tokens"), "{wrong}");
    let mut request = Request::new(chat_request("A secret"));
    request.metadata_mut().insert("x-request-id", "log-stream".parse().expect("a value"));
    let mut stream = chat(&server.grpc).await.chat(request).await.expect("a stream").into_inner();
    while stream.message().await.expect("a response").is_some() {}
    check("log-stream", &["/muse.v1.ChatService/Chat", "status=\"Ok\"", "completion_tokens=17"])
        .await;
    let body = json!({ "messages": [{ "role": "user", "content": "A secret" }], "stream": true });
    let head = "X-Request-Id: log-left\r\n";
    let mut socket =
        crate::client::send_with(server.http, "POST", CHAT, head, body.to_string().as_bytes())
            .await;
    socket.read_exact(&mut [0; 64]).await.expect("the head of a reply");
    drop(socket);
    check("log-left", &["status=\"200\"", "disconnected=true"]).await;
    // Fields without effect are named once, however many requests have them.
    let mut body = json!({ "messages": [{ "role": "user", "content": "Hi" }] });
    for name in ["client_metadata", "prompt_cache_key", "include"] {
        body[name] = json!({ "key": "a secret" });
    }
    for _ in 0..2 {
        let reply = http_with(server.http, "POST", CHAT, "", body.to_string().as_bytes()).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
    }
    let text = String::from_utf8(log.0.lock().expect("no panic").clone()).expect("UTF-8");
    for name in ["client_metadata", "prompt_cache_key", "include"] {
        assert_eq!(text.matches(&format!("field=\"{name}\"")).count(), 1, "{text}");
    }
    assert!(!text.contains("a secret"), "{text}");
}
