//! The server: listens for gRPC and HTTP, and leaves in good order.

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
use crate::service::{Gate, Service};
use crate::{grpc, http};

/// Streams that one connection may have open.
const STREAMS: u32 = 1024;
/// How long replies may still be on their way when all requests are done.
const FAREWELL: Duration = Duration::from_secs(2);

/// How long to wait when there are no descriptors left to accept with.
const BREATH: Duration = Duration::from_millis(100);

/// Where and how to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeOptions {
    /// Address of gRPC; port 0 takes a free one.
    pub grpc: SocketAddr,
    /// Address of HTTP; port 0 takes a free one.
    pub http: SocketAddr,
    /// The most bytes of a request.
    pub max_message_bytes: usize,
    /// How long running requests may take to finish when the server drains.
    pub drain: Duration,
    /// How long an HTTP connection may take to send the head of a request, or stay without one, and
    /// one of gRPC to send the preface of HTTP/2.
    pub silence: Duration,
}

impl Default for ServeOptions {
    /// Loopback, the usual ports, 64 MiB, 30 seconds to drain and a minute of silence.
    fn default() -> Self {
        Self {
            grpc: SocketAddr::from(([127, 0, 0, 1], 50051)),
            http: SocketAddr::from(([127, 0, 0, 1], 8080)),
            max_message_bytes: 64 << 20,
            drain: Duration::from_secs(30),
            silence: Duration::from_secs(60),
        }
    }
}

/// A server that listens, but does not answer yet.
pub struct Server {
    service: Service,
    options: ServeOptions,
    grpc: TcpListener,
    http: TcpListener,
}

impl Server {
    /// Says whether the addresses are free, before a model is loaded for minutes.
    ///
    /// # Errors
    /// When one of them is taken or not this machine's; the message says which.
    pub fn check(options: &ServeOptions) -> io::Result<()> {
        for (name, address) in [("gRPC", options.grpc), ("HTTP", options.http)] {
            std::net::TcpListener::bind(address).map_err(|error| refused(name, address, &error))?;
        }
        Ok(())
    }

    /// Takes the addresses.
    ///
    /// # Errors
    /// When one of them is taken or not this machine's; the message says which.
    pub async fn bind(app: Arc<App>, options: ServeOptions) -> io::Result<Self> {
        let service = Service::new(app, Gate::default());
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

    /// Serves until `shutdown`, then drains: health says so, new requests are refused, running ones
    /// finish within the limit, what still runs behind it is ended.
    ///
    /// # Errors
    /// When a listener fails.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let Self { service, options, grpc, http } = self;
        let (close, closing) = watch::channel(false);
        let closed = |mut closing: watch::Receiver<bool>| async move {
            // An error means that the other half is gone, which is a reason to close as well.
            let _ = closing.wait_for(|&close| close).await;
        };
        let (routes, health) = grpc::routes(&service, options.max_message_bytes).await;
        let silence = options.silence;
        let connections = TcpIncoming::from(grpc)
            .with_nodelay(Some(true))
            .then(move |socket| async move {
                match socket {
                    Ok(socket) => Some(io::Result::Ok(grpc::Greeting::within(silence, socket))),
                    Err(error) => {
                        recover("gRPC", &error).await;
                        None
                    }
                }
            })
            .filter_map(|socket| socket);
        let grpc = tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(Duration::from_secs(30)))
            .http2_keepalive_timeout(Some(Duration::from_secs(10)))
            .max_concurrent_streams(STREAMS)
            .add_routes(routes)
            .serve_with_incoming_shutdown(connections, closed(closing.clone()));
        let router = http::router(service.clone(), options.max_message_bytes);
        let http = http::serve(http, router, options.silence, closed(closing));
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
        // Idle connections close at once; a client that watches health, or does not read its last
        // reply, must not hold the process.
        let goodbye = async { tokio::join!(&mut grpc, &mut http) };
        if tokio::time::timeout(FAREWELL, goodbye).await.is_err() {
            grpc.abort();
            http.abort();
        }
        info!("stopped");
        Ok(())
    }
}

async fn listen(name: &str, address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| refused(name, address, &error))
}

fn refused(name: &str, address: SocketAddr, error: &io::Error) -> io::Error {
    let message = format!("cannot listen for {name} on {address}: {error}; choose another address");
    io::Error::new(error.kind(), message)
}

/// A client that hung up already is its own matter; without descriptors there is a pause, in which
/// others may end.
pub(crate) async fn recover(name: &str, error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        warn!("cannot accept a connection for {name}: {error}; trying again");
        tokio::time::sleep(BREATH).await;
    }
}

async fn drain(service: &Service, health: &HealthReporter, limit: Duration) {
    service.gate().close();
    grpc::tell_health(health, ServingStatus::NotServing).await;
    info!(running = service.gate().inside(), "draining");
    if tokio::time::timeout(limit, service.gate().empty()).await.is_err() {
        warn!(running = service.gate().inside(), "the limit of the drain passed");
        service.gate().stop(service.app().engine.as_ref());
        // A step and a reply away from the end.
        let _ = tokio::time::timeout(FAREWELL, service.gate().empty()).await;
    }
}
