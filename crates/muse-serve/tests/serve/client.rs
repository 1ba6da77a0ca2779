//! Clients: gRPC requests as messages, HTTP requests as text.

use std::net::SocketAddr;

use muse_proto::v1::chat_response::Event;
use muse_proto::v1::chat_service_client::ChatServiceClient;
use muse_proto::v1::{ChatRequest, ChatResponse, Conversation, Message, Part, Role, part};
use prost::bytes::{Buf, BufMut};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};

/// A connection to a server.
pub(crate) async fn channel(url: &str) -> Channel {
    Endpoint::from_shared(url.to_owned()).expect("an URL").connect().await.expect("a server")
}

/// A client of the chat service.
pub(crate) async fn chat(url: &str) -> ChatServiceClient<Channel> {
    ChatServiceClient::new(channel(url).await)
}

/// A message of text.
pub(crate) fn message(role: Role, text: &str) -> Message {
    let content = vec![Part { part: Some(part::Part::Text(text.to_owned())) }];
    Message { role: role.into(), content, ..Message::default() }
}

/// A request with one user message.
pub(crate) fn chat_request(text: &str) -> ChatRequest {
    let messages = vec![message(Role::User, text)];
    let conversation = Some(Conversation { messages, ..Conversation::default() });
    ChatRequest { conversation, ..ChatRequest::default() }
}

/// All responses, until the end or a status.
pub(crate) async fn responses(
    url: &str,
    request: ChatRequest,
) -> (Vec<ChatResponse>, Result<(), Status>) {
    let mut all = Vec::new();
    let mut stream = match chat(url).await.chat(request).await {
        Ok(response) => response.into_inner(),
        Err(status) => return (all, Err(status)),
    };
    loop {
        match stream.message().await {
            Ok(Some(response)) => all.push(response),
            Ok(None) => return (all, Ok(())),
            Err(status) => return (all, Err(status)),
        }
    }
}

/// Reasoning and text of a choice.
pub(crate) fn texts_of(responses: &[ChatResponse], choice: u32) -> (String, String) {
    let (mut reasoning, mut text) = (String::new(), String::new());
    for response in responses.iter().filter(|response| response.choice == choice) {
        match &response.event {
            Some(Event::Reasoning(delta)) => reasoning.push_str(&delta.text),
            Some(Event::Text(delta)) => text.push_str(&delta.text),
            _ => {}
        }
    }
    (reasoning, text)
}

/// A reply over HTTP.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    /// The data of an event stream.
    pub(crate) fn events(&self) -> Vec<&str> {
        self.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect()
    }
}

/// Sends a request head and body, leaving the connection open.
pub(crate) async fn send(to: SocketAddr, method: &str, path: &str, body: &[u8]) -> TcpStream {
    send_with(to, method, path, "", body).await
}

/// Sends a request with more headers, each with its line end.
pub(crate) async fn send_with(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &[u8],
) -> TcpStream {
    let mut stream = TcpStream::connect(to).await.expect("a server");
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\nContent-Type: \
         application/json\r\n{headers}Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("a listening server");
    // A server that refuses a large body may hang up before it read all.
    let _ = stream.write_all(body).await;
    stream
}

/// A whole exchange.
pub(crate) async fn http(to: SocketAddr, method: &str, path: &str, body: &[u8]) -> Reply {
    http_with(to, method, path, "", body).await
}

/// A whole exchange with more headers, each with its line end.
pub(crate) async fn http_with(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &[u8],
) -> Reply {
    read_reply(send_with(to, method, path, headers, body).await).await
}

/// Reads the reply of a connection that the server closes after it.
pub(crate) async fn read_reply(mut stream: TcpStream) -> Reply {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        bytes.extend_from_slice(&buffer[..count]);
    }
    let text = String::from_utf8(bytes).expect("UTF-8");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}"));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
    let head = head.to_ascii_lowercase();
    let chunked = head.contains("transfer-encoding: chunked");
    let body = if chunked { unchunk(body) } else { body.to_owned() };
    Reply { status, head, body }
}

fn unchunk(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        body.push_str(&after[..size]);
        rest = &after[size + 2..];
    }
    body
}

/// Sends and receives bytes unchanged.
#[derive(Clone, Copy)]
pub(crate) struct RawCodec;

impl Codec for RawCodec {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for RawCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining()).to_vec()))
    }
}
