//! A server answers while its model is loaded, and serves it on the same sockets and connections.

use std::net::SocketAddr;
use std::sync::Arc;

use muse_serve::{LoadProgress, LoadingServer, ServeOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_stream::StreamExt as _;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::client::{channel, chat_request, http, responses};
use crate::fake::{ScriptedEngine, app};

const CHAT: &str = "/v1/chat/completions";

async fn loading(progress: LoadProgress) -> LoadingServer {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = ServeOptions { grpc: any, http: any, ..ServeOptions::default() };
    LoadingServer::bind(options, progress).await.expect("free ports")
}

#[tokio::test]
async fn while_a_model_is_loaded_http_tells_how_far_and_health_is_not_serving() {
    let progress = LoadProgress::default();
    let server = loading(progress.clone()).await;
    for (done, percent) in [(1, 25), (3, 75)] {
        progress.set("loading the model", done, 4);
        for (method, path) in [("GET", "/health"), ("POST", CHAT), ("GET", "/v1/models")] {
            let reply = http(server.http_addr(), method, path, b"{}").await;
            assert_eq!(reply.status, 503, "{path}");
            assert!(reply.head.contains("retry-after: 1"), "{}", reply.head);
            let body = reply.json();
            assert_eq!(
                (&body["status"], &body["progress"]["percent"], &body["error"]["code"]),
                (&"loading".into(), &percent.into(), &"loading".into())
            );
        }
        let url = format!("http://{}", server.grpc_addr());
        let (_, end) = responses(&url, chat_request("Hi")).await;
        let status = end.expect_err("no model");
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        assert!(status.message().contains(&format!("{percent} %")), "{status:?}");
        let mut health = HealthClient::new(channel(&url).await);
        let request = HealthCheckRequest { service: "muse.v1.ChatService".to_owned() };
        let status = health.check(request).await.expect("health").into_inner().status;
        assert_eq!(status, i32::from(ServingStatus::NotServing));
    }
}

/// The status of `GET /health` over a connection that stays open.
async fn health(socket: &mut TcpStream) -> String {
    socket.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("a connection");
    let mut reply = String::new();
    let mut left = usize::MAX;
    while left > 0 {
        reply.push(socket.read_u8().await.expect("a reply").into());
        left -= 1;
        if reply.ends_with("\r\n\r\n") {
            let (_, length) = reply.split_once("content-length: ").expect("a length");
            left = length.lines().next().and_then(|line| line.parse().ok()).expect("a length");
        }
    }
    reply[9..12].to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_sockets_and_connections_serve_the_model_when_it_is_ready() {
    let loading = loading(LoadProgress::default()).await;
    let (grpc, to) = (format!("http://{}", loading.grpc_addr()), loading.http_addr());
    let mut kept = TcpStream::connect(to).await.expect("a listener");
    assert_eq!(health(&mut kept).await, "503");
    let request = HealthCheckRequest { service: "muse.v1.ChatService".to_owned() };
    let watched = HealthClient::new(channel(&grpc).await).watch(request).await.expect("health");
    let mut watched = watched.into_inner();
    let mut seen = async || watched.next().await.expect("a status").expect("a status").status();
    assert_eq!(seen().await, ServingStatus::NotServing);
    // New connections are never refused, nor closed without a reply.
    let (before, mut progress) = watch::channel(0);
    let connecting = tokio::spawn(async move {
        loop {
            let reply = http(to, "GET", "/health", b"").await;
            match reply.status {
                503 => before.send_modify(|count| *count += 1),
                status => return status,
            }
        }
    });
    progress.wait_for(|&count| count > 3).await.expect("replies while it is loaded");
    let server = loading.serve(Arc::new(app(ScriptedEngine::default()))).await;
    assert_eq!((&format!("http://{}", server.grpc_addr()), server.http_addr()), (&grpc, to));
    assert_eq!(connecting.await.expect("no connection is refused"), 200);
    assert_eq!(health(&mut kept).await, "200");
    assert_eq!(seen().await, ServingStatus::Serving);
    let (_, end) = responses(&grpc, chat_request("Hi")).await;
    end.expect("an answer");
}
