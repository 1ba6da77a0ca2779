//! The memory that requests hold together is bounded, over both protocols, and large requests are
//! decoded without delaying others.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use muse_core::contract::{Token, Tokenizer};
use muse_proto::v1::tokenizer_service_client::TokenizerServiceClient;
use muse_proto::v1::{ChatRequest, Conversation, DetokenizeRequest, Message, TokenizeRequest};
use prost::Message as _;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tonic::{Code, Request};
use tonic_types::StatusExt;

use crate::client::{RawCodec, channel, chat_request, http, responses};
use crate::fake::{
    ByteTokenizer, CONTENT, HANG, MAX_POSITIONS, Running, ScriptedEngine, answer, app,
};

const CHAT: &str = "/v1/chat/completions";
const MIB: usize = 1 << 20;

async fn with_memory(bytes: usize) -> Running {
    Running::start_with(app(ScriptedEngine::default()), |options| {
        options.max_request_memory = bytes;
    })
    .await
}

fn hello() -> Vec<u8> {
    json!({ "messages": [{ "role": "user", "content": "Hi" }] }).to_string().into_bytes()
}

/// Sends half of a body that is announced as `2 * bytes`.
async fn unfinished_upload(to: SocketAddr, bytes: usize) -> TcpStream {
    let mut socket = TcpStream::connect(to).await.expect("a server");
    let length = 2 * bytes;
    let head = format!("POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    socket.write_all(head.as_bytes()).await.expect("a listening server");
    // A refused upload ends before it is sent.
    let _ = socket.write_all(&vec![b' '; bytes]).await;
    socket
}

#[tokio::test]
async fn unfinished_uploads_share_the_memory_of_both_protocols() {
    const LIMIT: usize = 256 << 10;
    let server = with_memory(LIMIT).await;
    let mut uploads = Vec::new();
    for _ in 0..4 {
        uploads.push(unfinished_upload(server.http, LIMIT / 4 - 4096).await);
    }
    // Small uploads fill what is left, whichever arrive.
    let (mut over_http, mut over_grpc) = (None, None);
    while over_http.is_none() || over_grpc.is_none() {
        assert!(uploads.len() < 1000, "uploads take no memory");
        uploads.push(unfinished_upload(server.http, 512).await);
        let reply = http(server.http, "POST", CHAT, &hello()).await;
        over_http = over_http.or((reply.status == 429).then_some(reply));
        let (_, end) = responses(&server.grpc, chat_request("Hi")).await;
        over_grpc = over_grpc.or(end.err());
    }
    let reply = over_http.expect("a refusal");
    assert!(reply.head.contains("retry-after: 1"), "{}", reply.head);
    let error = &reply.json()["error"];
    assert_eq!(
        (&error["code"], &error["type"]),
        (&json!("server_busy"), &json!("rate_limit_error"))
    );
    assert!(error["message"].as_str().is_some_and(|m| m.contains("memory")), "{error}");
    let status = over_grpc.expect("a refusal");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    let retry = status.get_error_details().retry_info().expect("a delay").retry_delay;
    assert_eq!(retry, Some(Duration::from_secs(1)));
    assert_eq!(http(server.http, "GET", "/health", b"").await.status, 200);
    drop(uploads);
    for _ in 0..500 {
        let reply = http(server.http, "POST", CHAT, &hello()).await;
        let (_, end) = responses(&server.grpc, chat_request("Hi")).await;
        if reply.status == 200 && end.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the memory of ended uploads is not returned");
}

#[tokio::test]
async fn unknown_fields_of_a_body_take_no_memory_beyond_their_text() {
    // As values they would take 34 times their text.
    let server = with_memory(96 * MIB).await;
    let zeros = vec!["0"; 2 * MIB - 1].join(",");
    let body = format!(
        r#"{{"metadata": [{zeros}], "messages": [{{ "role": "user", "content": "Hi" }}]}}"#
    );
    let reply = http(server.http, "POST", CHAT, body.as_bytes()).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let body = format!(r#"{{"stop": [{zeros}], "messages": []}}"#);
    let reply = http(server.http, "POST", CHAT, body.as_bytes()).await;
    assert_eq!(reply.status, 400, "{}", reply.body);
    assert!(reply.body.contains("up to 500000 values"), "{}", reply.body);
}

#[tokio::test]
async fn empty_grpc_messages_count_with_their_memory() {
    let server = with_memory(64 * MIB).await;
    let messages = vec![Message::default(); 500_000];
    let conversation = Some(Conversation { messages, ..Conversation::default() });
    let request = ChatRequest { conversation, ..ChatRequest::default() };
    assert!(request.encoded_len() < 2 * MIB, "two bytes each");
    let (_, end) = responses(&server.grpc, request).await;
    let status = end.expect_err("too many");
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(status.message().contains("bytes of memory"), "{status:?}");
    let (_, end) = responses(&server.grpc, chat_request("Hi")).await;
    end.expect("memory again");
}

#[tokio::test]
async fn detokenized_ids_are_bounded() {
    let server = with_memory(64 * MIB).await;
    let mut client = TokenizerServiceClient::new(channel(&server.grpc).await);
    let ids =
        |count: u32| DetokenizeRequest { ids: vec![65; count as usize], ..Default::default() };
    let reply = client.detokenize(ids(MAX_POSITIONS)).await.expect("as many as positions");
    assert_eq!(reply.into_inner().bytes.len(), MAX_POSITIONS as usize);
    let status = client.detokenize(ids(MAX_POSITIONS + 1)).await.expect_err("too many");
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(status.message().contains("ids: found 513; at most 512"), "{status:?}");
}

#[tokio::test]
async fn a_reply_that_is_not_read_holds_its_memory() {
    // Log-probabilities of 16 * 400 tokens with 20 alternatives take 6 MB, of which the kernel holds
    // 3 MB.
    let tokens = answer(&[(CONTENT, &"x".repeat(400))]);
    let script = ScriptedEngine { tokens, ..ScriptedEngine::default() };
    let server =
        Running::start_with(app(script), |options| options.max_request_memory = 20 * MIB).await;
    let body = json!({ "messages": [{ "role": "user", "content": "Hi" }], "logprobs": true,
        "top_logprobs": 20, "n": 16 });
    let body = body.to_string();
    let head = format!("POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut clients = Vec::new();
    for _ in 0..8 {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4096).expect("a buffer");
        let mut socket = socket.connect(server.http).await.expect("a server");
        socket.write_all(head.as_bytes()).await.expect("a listening server");
        socket.write_all(body.as_bytes()).await.expect("a listening server");
        let mut start = [0; 12];
        socket.read_exact(&mut start).await.expect("a reply");
        if start.ends_with(b"429") {
            return;
        }
        clients.push(socket);
    }
    panic!("replies without readers took no memory");
}

#[tokio::test]
async fn a_stream_that_is_not_read_holds_its_memory() {
    let script = ScriptedEngine {
        endless: true,
        max_positions: 1_000_000,
        tokens: answer(&[(CONTENT, "x")]),
        ..ScriptedEngine::default()
    };
    let record = script.record.clone();
    let server = Running::start_with(app(script), |options| options.max_request_memory = MIB).await;
    let body = json!({ "messages": [{ "role": "user", "content": "Hi" }], "logprobs": true,
        "top_logprobs": 20, "stream": true });
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a buffer");
    let mut socket = socket.connect(server.http).await.expect("a server");
    let body = body.to_string();
    let head = format!("POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    socket.write_all(head.as_bytes()).await.expect("a listening server");
    socket.write_all(body.as_bytes()).await.expect("a listening server");
    socket.read_exact(&mut [0; 12]).await.expect("a reply");
    // The sequence is cancelled when the memory is full, before 16384 events wait.
    record.idle().await;
    let steps = record.steps.load(Ordering::Relaxed);
    assert!(steps < 12_000, "{steps} tokens of 400 bytes wait in a MiB");
    drop(socket);
    while http(server.http, "POST", "/v1/models", b"").await.status != 405 {}
}

/// The longest time that `/health` takes while `large` is answered.
async fn slowest_health(
    to: SocketAddr,
    large: impl Future<Output = ()> + Send + 'static,
) -> Duration {
    let large = tokio::spawn(large);
    let mut slowest = Duration::ZERO;
    while !large.is_finished() {
        let start = Instant::now();
        assert_eq!(http(to, "GET", "/health", b"").await.status, 200);
        slowest = slowest.max(start.elapsed());
    }
    large.await.expect("no panic");
    slowest
}

#[tokio::test(flavor = "multi_thread")]
async fn decoding_a_large_request_delays_no_other() {
    // One worker: what is decoded there delays everything else.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let server = runtime.spawn(Running::start(app(ScriptedEngine::default())));
    let server = server.await.expect("a server");
    let mut found = Vec::new();
    // Another program may take the processor meanwhile, which a longer decoding outlasts.
    for ids in [2_000_000, 4_000_000, 8_000_000, 16_000_000] {
        let request = DetokenizeRequest { ids: vec![65; ids], ..Default::default() };
        let bytes = request.encode_to_vec();
        let start = Instant::now();
        DetokenizeRequest::decode(bytes.as_slice()).expect("just encoded");
        let decoding = start.elapsed();
        let mut client = tonic::client::Grpc::new(channel(&server.grpc).await);
        let large = async move {
            client.ready().await.expect("a server");
            let path = "/muse.v1.TokenizerService/Detokenize".parse().expect("a path");
            let reply = client.unary(Request::new(bytes), path, RawCodec).await;
            let status = reply.expect_err("too many ids");
            assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        };
        let over_grpc = slowest_health(server.http, large).await;
        let body =
            format!(r#"{{"x": [{}], "messages": []}}"#, vec!["0"; ids].join(",")).into_bytes();
        let to = server.http;
        let large = async move {
            assert_eq!(http(to, "POST", CHAT, &body).await.status, 400);
        };
        let over_http = slowest_health(server.http, large).await;
        if over_grpc < decoding / 2 && over_http < decoding / 2 {
            runtime.shutdown_background();
            return;
        }
        found.push((decoding, over_grpc, over_http));
    }
    panic!("health waits for others: {found:?}");
}

/// Encodes nothing before as many encodings are allowed as were begun.
#[derive(Default)]
struct WaitingTokenizer {
    begun: AtomicUsize,
    allowed: AtomicUsize,
}

impl Tokenizer for WaitingTokenizer {
    fn encode(&self, text: &str, out: &mut Vec<Token>) {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        while self.allowed.load(Ordering::Relaxed) <= number {
            std::thread::sleep(Duration::from_millis(1));
        }
        ByteTokenizer.encode(text, out);
    }

    fn special_token(&self, spelling: &str) -> Option<Token> {
        ByteTokenizer.special_token(spelling)
    }

    fn is_special(&self, token: Token) -> bool {
        ByteTokenizer.is_special(token)
    }

    fn decode(&self, token: Token, out: &mut Vec<u8>) {
        ByteTokenizer.decode(token, out);
    }

    fn vocab_size(&self) -> usize {
        ByteTokenizer.vocab_size()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokenizing_delays_no_other() {
    // One worker: what is tokenized there stops everything else.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let tokenizer = Arc::new(WaitingTokenizer::default());
    let mut model = app(ScriptedEngine::default());
    model.tokenizer = Some(tokenizer.clone());
    let server = runtime.spawn(Running::start(model)).await.expect("a server");
    for (number, call) in ["tokenize", "chat over gRPC", "chat over HTTP"].into_iter().enumerate() {
        let (grpc, to) = (server.grpc.clone(), server.http);
        let request = tokio::spawn(async move {
            match call {
                "tokenize" => {
                    let mut client = TokenizerServiceClient::new(channel(&grpc).await);
                    let text = "one word".to_owned();
                    let request = TokenizeRequest { text, ..TokenizeRequest::default() };
                    assert_eq!(
                        client.tokenize(request).await.expect("ids").into_inner().ids.len(),
                        8
                    );
                }
                "chat over gRPC" => {
                    responses(&grpc, chat_request("Hi")).await.1.expect("an answer")
                }
                _ => assert_eq!(http(to, "POST", CHAT, &hello()).await.status, 200),
            }
        });
        let others = async {
            while tokenizer.begun.load(Ordering::Relaxed) <= number {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(http(to, "GET", "/health", b"").await.status, 200);
        };
        let answered = tokio::time::timeout(HANG, others).await;
        tokenizer.allowed.fetch_add(1, Ordering::Relaxed);
        answered.unwrap_or_else(|_| panic!("{call} stops other requests"));
        request.await.expect("an answer");
    }
    runtime.shutdown_background();
}
