//! The server: listens for gRPC and HTTP, and drains when it is told to stop.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::StreamExt as _;
use tonic::transport::server::TcpIncoming;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tracing::{info, warn};

use crate::app::App;
use crate::service::{ByteBudget, DrainGuard, Service, ServiceOptions};
use crate::{grpc, http};

/// Streams that one gRPC connection may have open.
const MAX_CONCURRENT_STREAMS: u32 = 1024;
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

/// A server whose sockets are bound, but which does not answer yet.
pub struct Server {
    service: Service,
    options: ServeOptions,
    grpc: TcpListener,
    http: TcpListener,
}

impl Server {
    /// Checks that the addresses are free, before a model is loaded for minutes.
    ///
    /// # Errors
    /// When one of them is in use or not an address of this machine; the message says which.
    pub fn check(options: &ServeOptions) -> io::Result<()> {
        for (name, address) in [("gRPC", options.grpc), ("HTTP", options.http)] {
            std::net::TcpListener::bind(address)
                .map_err(|error| bind_error(name, address, &error))?;
        }
        Ok(())
    }

    /// Binds the addresses.
    ///
    /// # Errors
    /// As [`Server::check`].
    pub async fn bind(app: Arc<App>, options: ServeOptions) -> io::Result<Self> {
        let service = Service::new(app, DrainGuard::default()).with_options(options.service);
        let grpc = listen("gRPC", options.grpc).await?;
        let http = listen("HTTP", options.http).await?;
        Ok(Self { service, options, grpc, http })
    }

    /// The address gRPC listens on.
    pub fn grpc_addr(&self) -> SocketAddr {
        self.grpc.local_addr().expect("a bound socket has an address")
    }

    /// The address HTTP listens on.
    pub fn http_addr(&self) -> SocketAddr {
        self.http.local_addr().expect("a bound socket has an address")
    }

    /// Serves until `shutdown`, then drains: health reports NOT_SERVING, new requests are refused,
    /// running ones may finish within [`ServeOptions::drain`], after which they are cancelled.
    ///
    /// # Errors
    /// When a listener fails.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let Self { service, options, grpc, http } = self;
        let budget = ByteBudget::new(options.max_request_memory);
        let (close, closing) = watch::channel(false);
        let closed = |mut closing: watch::Receiver<bool>| async move {
            // An error means that the sender is dropped, which is a reason to close as well.
            let _ = closing.wait_for(|&close| close).await;
        };
        let (routes, health) =
            grpc::routes(&service, budget.clone(), options.max_message_bytes).await;
        let timeout = options.keep_alive;
        let connections = TcpIncoming::from(grpc)
            .with_nodelay(Some(true))
            .then(move |socket| async move {
                match socket {
                    Ok(socket) => Some(io::Result::Ok(grpc::PrefaceTimeout::new(timeout, socket))),
                    Err(error) => {
                        on_accept_error("gRPC", &error).await;
                        None
                    }
                }
            })
            .filter_map(|socket| socket);
        let grpc = tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(Duration::from_secs(30)))
            .http2_keepalive_timeout(Some(Duration::from_secs(10)))
            .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
            .add_routes(routes)
            .serve_with_incoming_shutdown(connections, closed(closing.clone()));
        let router = http::router(service.clone(), budget, options.max_message_bytes);
        let http = http::serve(http, router, options.keep_alive, closed(closing));
        let (mut grpc, mut http) = (tokio::spawn(grpc), tokio::spawn(http));
        let failed = tokio::select! {
            () = shutdown => None,
            ended = &mut grpc => Some(("gRPC", format!("{ended:?}"))),
            ended = &mut http => Some(("HTTP", format!("{ended:?}"))),
        };
        drain(&service, &health, options.drain).await;
        close.send_replace(true);
        if let Some((name, why)) = failed {
            return Err(io::Error::other(format!("the {name} listener failed: {why}")));
        }
        // Idle connections close at once. A client that watches health, or does not read its last
        // reply, must not keep the process alive.
        let closed = async { tokio::join!(&mut grpc, &mut http) };
        if tokio::time::timeout(CLOSE_TIMEOUT, closed).await.is_err() {
            grpc.abort();
            http.abort();
        }
        info!("stopped");
        Ok(())
    }
}

pub(crate) async fn listen(name: &str, address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| bind_error(name, address, &error))
}

fn bind_error(name: &str, address: SocketAddr, error: &io::Error) -> io::Error {
    let message = format!("cannot listen for {name} on {address}: {error}; choose another address");
    io::Error::new(error.kind(), message)
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

async fn drain(service: &Service, health: &HealthReporter, limit: Duration) {
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
