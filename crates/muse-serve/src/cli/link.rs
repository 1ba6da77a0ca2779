//! Who answers a chat: a model in this process or a server, spoken to in the same messages.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use muse_proto::v1::chat_service_client::ChatServiceClient;
use muse_proto::v1::chat_service_server::ChatService;
use muse_proto::v1::{ChatRequest, ChatResponse};
use muse_serve::App;
use muse_serve::grpc::ChatApi;
use tokio_stream::Stream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

/// The events of an answer.
pub(super) type Events = Pin<Box<dyn Stream<Item = Result<ChatResponse, Status>> + Send>>;

/// The way to the one who answers.
pub(super) enum Link {
    Local(ChatApi),
    Server(ChatServiceClient<Channel>),
}

impl Link {
    /// Answers with a model of this process.
    pub(super) fn local(app: Arc<App>) -> Self {
        Self::Local(ChatApi::new(app))
    }

    /// Connects to a server's gRPC address.
    pub(super) async fn server(url: &str) -> Result<Self> {
        if url.starts_with("https://") {
            bail!("--server {url}: this client has no TLS; let a proxy on this machine add it")
        }
        let full = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let endpoint = Endpoint::from_shared(full)
            .with_context(|| format!("--server {url} is no address such as 127.0.0.1:50051"))?;
        let channel = endpoint.connect_timeout(Duration::from_secs(10)).connect().await;
        let advice = || format!("no server answers at {url}; start one with `muse serve`");
        Ok(Self::Server(ChatServiceClient::new(channel.with_context(advice)?)))
    }

    /// Asks for an answer. Dropping the events cancels it.
    pub(super) async fn ask(&mut self, request: ChatRequest) -> Result<Events, Status> {
        match self {
            Self::Local(chat) => Ok(chat.chat(Request::new(request)).await?.into_inner()),
            Self::Server(client) => Ok(Box::pin(client.chat(request).await?.into_inner())),
        }
    }
}
