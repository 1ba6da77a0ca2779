//! The server of a model: its options, and its end, when it drains.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tracing::{info, warn};

use crate::app::App;
use crate::grpc;
use crate::loading::{LoadProgress, LoadingServer};
use crate::service::{Service, ServiceOptions};

/// How long connections may take to send their last replies once all requests are done.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait before accepting again when no file descriptor is left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Where and how to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeOptions {
    /// Address of gRPC; port 0 takes a free one.
    pub grpc: SocketAddr,
    /// Address of HTTP; port 0 takes a free one.
    pub http: SocketAddr,
    /// The most bytes of a request's body or message.
    pub max_message_bytes: usize,
    /// The most bytes of memory that all requests hold together: bodies as they arrive, what they
    /// are decoded to, and replies that wait for their clients.
    pub max_request_memory: usize,
    /// Bounds on single requests, and defaults of what they leave open.
    pub service: ServiceOptions,
    /// How long running requests may take to finish when the server drains.
    pub drain: Duration,
    /// How long an HTTP connection may stay idle between requests and take to send the head of one,
    /// and how long a gRPC connection may take to send the preface of HTTP/2. It should be longer
    /// than the keep-alive of any proxy in front, which else may send a request to a connection that
    /// is being closed.
    pub keep_alive: Duration,
}

impl Default for ServeOptions {
    /// Loopback, ports 50051 and 8080, 64 MiB a request and 1 GiB for all, 30 seconds to drain, 120
    /// seconds of keep-alive.
    fn default() -> Self {
        Self {
            grpc: SocketAddr::from(([127, 0, 0, 1], 50051)),
            http: SocketAddr::from(([127, 0, 0, 1], 8080)),
            max_message_bytes: 64 << 20,
            max_request_memory: 1 << 30,
            service: ServiceOptions::default(),
            drain: Duration::from_secs(30),
            keep_alive: Duration::from_secs(120),
        }
    }
}

/// Sockets that answer. Dropping them closes the listeners.
pub(crate) struct Sockets {
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    /// True asks the listeners to close when the replies on their way are sent.
    pub(crate) close: watch::Sender<bool>,
    /// The listeners; each ends with its protocol and why.
    pub(crate) tasks: JoinSet<(&'static str, String)>,
}

/// A server of a model.
pub struct Server {
    pub(crate) service: Service,
    pub(crate) drain: Duration,
    pub(crate) sockets: Sockets,
    pub(crate) health: HealthReporter,
}

impl Server {
    /// Listens on both addresses and serves a model that is loaded. To listen before that, see
    /// [`LoadingServer`].
    ///
    /// # Errors
    /// When an address is in use or not one of this machine; the message says which.
    pub async fn bind(app: Arc<App>, options: ServeOptions) -> io::Result<Self> {
        Ok(LoadingServer::bind(options, LoadProgress::default()).await?.serve(app).await)
    }

    /// The address gRPC listens on.
    pub fn grpc_addr(&self) -> SocketAddr {
        self.sockets.grpc
    }

    /// The address HTTP listens on.
    pub fn http_addr(&self) -> SocketAddr {
        self.sockets.http
    }

    /// Serves until `shutdown`, then drains: health reports NOT_SERVING, new requests are refused,
    /// running ones may finish within [`ServeOptions::drain`], after which they are cancelled.
    ///
    /// # Errors
    /// When a listener fails.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let Self { service, drain, sockets, health } = self;
        let Sockets { close, mut tasks, .. } = sockets;
        let failed = tokio::select! {
            () = shutdown => None,
            ended = tasks.join_next() => ended,
        };
        drain_requests(&service, &health, drain).await;
        close.send_replace(true);
        if let Some(ended) = failed {
            let (name, why) = ended.map_err(io::Error::other)?;
            return Err(io::Error::other(format!("the {name} listener failed: {why}")));
        }
        // Idle connections close at once. A client that watches health, or does not read its last
        // reply, must not keep the process alive.
        let closed = async { while tasks.join_next().await.is_some() {} };
        // What is left after that ends when it is dropped.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closed).await;
        info!("stopped");
        Ok(())
    }
}

/// Handles a failed accept. A client that hung up is ignored; otherwise descriptors have run out,
/// and accepting pauses so that other connections may end.
pub(crate) async fn on_accept_error(name: &str, error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        warn!("cannot accept a connection for {name}: {error}; trying again");
        tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
    }
}

async fn drain_requests(service: &Service, health: &HealthReporter, limit: Duration) {
    service.drain_guard().drain();
    grpc::set_health(health, ServingStatus::NotServing).await;
    info!(running = service.drain_guard().active(), "draining");
    if tokio::time::timeout(limit, service.drain_guard().idle()).await.is_err() {
        warn!(running = service.drain_guard().active(), "the drain timed out");
        service.drain_guard().stop(service.app().engine.as_ref());
        // Cancelled sequences end with the next step.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, service.drain_guard().idle()).await;
    }
}
