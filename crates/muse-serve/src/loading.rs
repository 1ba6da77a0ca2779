//! What is answered while a model is loaded: HTTP 503 with the progress, gRPC UNAVAILABLE, and health
//! NOT_SERVING. The same sockets and connections serve the model once it is ready.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_stream::StreamExt as _;
use tonic::Status;
use tonic::transport::server::TcpIncoming;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::server::{Sockets, on_accept_error};
use crate::service::{ByteBudget, DrainGuard, Service};
use crate::{App, ServeOptions, Server, grpc, http};

/// Streams that one gRPC connection may have open.
const MAX_CONCURRENT_STREAMS: u32 = 1024;

/// How far loading is, for everybody who asks.
#[derive(Clone, Debug, Default)]
pub struct LoadProgress(Arc<Mutex<(String, usize, usize)>>);

impl LoadProgress {
    /// Notes what is being loaded, how many of its tensors are, and how many there are.
    pub fn set(&self, what: &str, done: usize, total: usize) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (what.to_owned(), done, total);
    }

    fn get(&self) -> (String, usize, usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn message(&self) -> String {
        format!("the model is being loaded ({} %); retry later", self.percent())
    }

    fn percent(&self) -> usize {
        let (_, done, total) = self.get();
        (done * 100).checked_div(total).unwrap_or(0)
    }

    fn response(&self) -> Response {
        let (what, done, total) = self.get();
        let percent = self.percent();
        let body = json!({
            "status": "loading",
            "progress": { "what": what, "loaded": done, "total": total, "percent": percent },
            "error": {
                "message": self.message(),
                "type": "server_error",
                "param": null,
                "code": "loading",
            },
        });
        let headers = [(header::RETRY_AFTER, "1")];
        (StatusCode::SERVICE_UNAVAILABLE, headers, Json(body)).into_response()
    }
}

/// A server whose model is not loaded yet.
pub struct LoadingServer {
    options: ServeOptions,
    sockets: Sockets,
    http: RouterSlot,
    grpc: RouterSlot,
    health: HealthReporter,
}

impl LoadingServer {
    /// Listens on both addresses and answers that the model is being loaded.
    ///
    /// # Errors
    /// When an address is in use or not one of this machine; the message says which.
    pub async fn bind(options: ServeOptions, progress: LoadProgress) -> io::Result<Self> {
        let grpc_listener = listen("gRPC", options.grpc).await?;
        let http_listener = listen("HTTP", options.http).await?;
        let (http_slot, grpc_slot) = (RouterSlot::default(), RouterSlot::default());
        let (close, closing) = watch::channel(false);
        let mut sockets = Sockets {
            grpc: grpc_listener.local_addr()?,
            http: http_listener.local_addr()?,
            close,
            tasks: JoinSet::new(),
        };
        let keep_alive = options.keep_alive;
        let loading = progress.clone();
        let router = http_slot.router(move || loading.response());
        let closed = wait_until_closed(closing.clone());
        sockets.tasks.spawn(async move {
            ("HTTP", format!("{:?}", http::serve(http_listener, router, keep_alive, closed).await))
        });
        let unavailable = move || Status::unavailable(progress.message()).into_http();
        let (routes, health) = grpc::loading_routes(|router: Router| {
            router.fallback_service(grpc_slot.router(unavailable))
        })
        .await;
        let closed = wait_until_closed(closing);
        sockets.tasks.spawn(async move {
            ("gRPC", format!("{:?}", serve_grpc(grpc_listener, routes, keep_alive, closed).await))
        });
        Ok(Self { options, sockets, http: http_slot, grpc: grpc_slot, health })
    }

    /// The address gRPC listens on.
    pub fn grpc_addr(&self) -> SocketAddr {
        self.sockets.grpc
    }

    /// The address HTTP listens on.
    pub fn http_addr(&self) -> SocketAddr {
        self.sockets.http
    }

    /// Serves a model from now on.
    pub async fn serve(self, app: Arc<App>) -> Server {
        let Self { options, sockets, http, grpc, health } = self;
        let service = Service::new(app, DrainGuard::default()).with_options(options.service);
        let budget = ByteBudget::new(options.max_request_memory);
        let max_bytes = options.max_message_bytes;
        http.set(http::router(service.clone(), budget.clone(), max_bytes));
        grpc.set(grpc::routes(&service, budget, max_bytes).into_axum_router());
        grpc::set_health(&health, ServingStatus::Serving).await;
        Server { service, drain: options.drain, sockets, health }
    }
}

/// Where the routes of a model go when it is ready.
#[derive(Clone, Default)]
struct RouterSlot(Arc<OnceLock<Router>>);

impl RouterSlot {
    fn set(&self, router: Router) {
        // It is set once, by the only caller.
        let _ = self.0.set(router);
    }

    /// Passes requests to the routes that are set; answers them with `loading` until then.
    fn router(&self, loading: impl Fn() -> Response + Clone + Send + Sync + 'static) -> Router {
        let Self(slot) = self.clone();
        Router::new().fallback(move |request: Request| async move {
            match slot.get() {
                Some(router) => TowerToHyperService::new(router.clone()).call(request).await,
                None => Ok(loading()),
            }
        })
    }
}

async fn serve_grpc(
    listener: TcpListener,
    routes: tonic::service::Routes,
    keep_alive: Duration,
    closing: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error> {
    let connections = TcpIncoming::from(listener)
        .with_nodelay(Some(true))
        .then(move |socket| async move {
            match socket {
                Ok(socket) => Some(io::Result::Ok(grpc::PrefaceTimeout::new(keep_alive, socket))),
                Err(error) => {
                    on_accept_error("gRPC", &error).await;
                    None
                }
            }
        })
        .filter_map(|socket| socket);
    tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(30)))
        .http2_keepalive_timeout(Some(Duration::from_secs(10)))
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .add_routes(routes)
        .serve_with_incoming_shutdown(connections, closing)
        .await
}

async fn listen(name: &str, address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        // A process that has as many open files as it may gets EMFILE.
        const EMFILE: i32 = 24;
        let advice = match error.raw_os_error() {
            Some(EMFILE) => "raise the limit on open files: `ulimit -n`, `LimitNOFILE=` of a unit",
            _ => "choose another address",
        };
        let message = format!("cannot listen for {name} on {address}: {error}; {advice}");
        io::Error::new(error.kind(), message)
    })
}

async fn wait_until_closed(mut closing: watch::Receiver<bool>) {
    // An error means that the sender is dropped, which is a reason to close as well.
    let _ = closing.wait_for(|&close| close).await;
}
