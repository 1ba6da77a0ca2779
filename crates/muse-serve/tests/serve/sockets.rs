//! HTTP connections: keep-alive, clients that close their sending half, and refusals of the parser.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{read_reply, send};
use crate::fake::{Running, ScriptedEngine, app};

const CHAT: &str = "/v1/chat/completions";

fn body(stream: bool) -> Vec<u8> {
    let messages = json!([{ "role": "user", "content": "Hi" }]);
    json!({ "messages": messages, "stream": stream }).to_string().into_bytes()
}

#[tokio::test]
async fn a_client_that_closes_its_sending_half_gets_its_answer() {
    for stream in [false, true] {
        let engine =
            ScriptedEngine { step: Duration::from_millis(20), ..ScriptedEngine::default() };
        let server = Running::start(app(engine)).await;
        let mut socket = send(server.http, "POST", CHAT, &body(stream)).await;
        socket.shutdown().await.expect("a connection");
        let mut text = String::new();
        socket.read_to_string(&mut text).await.expect("a reply");
        // The server asks whether the client is still there by an interim response.
        let text = text.trim_start_matches("HTTP/1.1 100 Continue\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        let end = if stream { "data: [DONE]" } else { "\"finish_reason\":\"stop\"" };
        assert!(text.contains(end), "{text}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_after_its_sending_half_is_noticed() {
    let engine = ScriptedEngine {
        endless: true,
        step: Duration::from_millis(2),
        max_positions: 1_000_000,
        ..ScriptedEngine::default()
    };
    let record = engine.record.clone();
    let server = Running::start(app(engine)).await;
    let mut socket = send(server.http, "POST", CHAT, &body(false)).await;
    socket.shutdown().await.expect("a connection");
    while record.steps.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(socket);
    record.idle().await;
    let steps = record.steps.load(Ordering::Relaxed);
    assert!(steps < 900_000, "{steps} steps: it went on after the disconnect");
}

#[tokio::test]
async fn connections_are_kept_for_the_next_request() {
    let server = Running::start(app(ScriptedEngine::default())).await;
    let mut socket = TcpStream::connect(server.http).await.expect("a server");
    let request = |more: &str| format!("GET /health HTTP/1.1\r\nHost: x\r\n{more}\r\n");
    for _ in 0..3 {
        socket.write_all(request("").as_bytes()).await.expect("an open connection");
        let mut reply = Vec::new();
        while !reply.ends_with(b"}") {
            let mut byte = [0];
            socket.read_exact(&mut byte).await.expect("a reply");
            reply.push(byte[0]);
        }
    }
    socket.write_all(request("Connection: close\r\n").as_bytes()).await.expect("still open");
    assert_eq!(read_reply(socket).await.status, 200);
    let default = muse_serve::ServeOptions::default().keep_alive;
    assert!(default > Duration::from_secs(75), "proxies keep connections for 60 to 75 seconds");
}

#[tokio::test]
async fn refusals_of_the_parser_have_bodies() {
    let server = Running::start(app(ScriptedEngine::default())).await;
    let long = "x".repeat(70_000);
    let headers: String = (0..200).map(|i| format!("X-{i}: y\r\n")).collect();
    for (request, status, code) in [
        (format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n"), 414, "url_too_long"),
        (format!("GET / HTTP/1.1\r\nHost: x\r\n{headers}\r\n"), 431, "headers_too_large"),
        ("GET / HTTP/1.1\r\nbad header\r\n\r\n".to_owned(), 400, "invalid_request"),
        ("nonsense\r\n\r\n".to_owned(), 400, "invalid_request"),
    ] {
        let mut socket = TcpStream::connect(server.http).await.expect("a server");
        socket.write_all(request.as_bytes()).await.expect("a listening server");
        let reply = read_reply(socket).await;
        assert_eq!(reply.status, status, "{}", reply.head);
        let error: &Value = &reply.json()["error"];
        assert_eq!(error["code"], code);
        assert!(error["message"].as_str().is_some_and(|m| m.len() > 20), "{error}");
    }
}
