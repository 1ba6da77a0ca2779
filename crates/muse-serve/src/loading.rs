//! What listens while a model is loaded: HTTP answers 503 with the progress, gRPC health
//! NOT_SERVING. The server takes over the addresses when the model is ready.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::transport::server::TcpIncoming;
use tonic_health::ServingStatus;

use crate::server::listen;
use crate::{ServeOptions, grpc, http};

/// How far loading is, for everybody who asks.
#[derive(Clone, Debug, Default)]
pub struct LoadProgress(Arc<Mutex<(String, usize, usize)>>);

impl LoadProgress {
    /// Notes what is being loaded, how many of its tensors are, and how many there are.
    pub fn set(&self, what: &str, done: usize, total: usize) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (what.to_owned(), done, total);
    }

    fn response(&self) -> Response {
        let (what, done, total) = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let percent = (done * 100).checked_div(total).unwrap_or(0);
        let body = json!({
            "status": "loading",
            "progress": { "what": what, "loaded": done, "total": total, "percent": percent },
            "error": {
                "message": format!("the model is being loaded ({percent} %); retry later"),
                "type": "server_error",
                "param": null,
                "code": "loading",
            },
        });
        let headers = [(header::RETRY_AFTER, "1"), (header::CONNECTION, "close")];
        (StatusCode::SERVICE_UNAVAILABLE, headers, Json(body)).into_response()
    }
}

/// Listens on both addresses until it is stopped.
pub struct LoadingServer {
    stop: watch::Sender<bool>,
    tasks: [JoinHandle<()>; 2],
}

impl LoadingServer {
    /// Listens on the addresses of `options`, in which a port of 0 becomes the one that was free.
    ///
    /// # Errors
    /// As [`crate::Server::check`].
    pub async fn start(options: &mut ServeOptions, progress: LoadProgress) -> io::Result<Self> {
        let grpc_listener = listen("gRPC", options.grpc).await?;
        let http_listener = listen("HTTP", options.http).await?;
        (options.grpc, options.http) = (grpc_listener.local_addr()?, http_listener.local_addr()?);
        let (stop, stopped) = watch::channel(false);
        let router = Router::new().fallback(move || {
            let response = progress.response();
            async move { response }
        });
        let keep_alive = options.keep_alive;
        let closing = wait(stopped.clone());
        let http = tokio::spawn(async move {
            // It ends when it is stopped.
            let _ = http::serve(http_listener, router, keep_alive, closing).await;
        });
        let grpc = tokio::spawn(serve_health(grpc_listener, wait(stopped)));
        Ok(Self { stop, tasks: [http, grpc] })
    }

    /// Frees the addresses. Connections that are still open are closed.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        // A client that watches health would hold its connection for ever.
        let patience = std::time::Duration::from_millis(200);
        for mut task in self.tasks {
            if tokio::time::timeout(patience, &mut task).await.is_err() {
                task.abort();
                let _ = task.await;
            }
        }
    }
}

async fn wait(mut stopped: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a reason to stop as well.
    let _ = stopped.wait_for(|&stopped| stopped).await;
}

async fn serve_health(listener: TcpListener, closing: impl Future<Output = ()>) {
    let (reporter, health) = tonic_health::server::health_reporter();
    grpc::set_health(&reporter, ServingStatus::NotServing).await;
    let server = tonic::transport::Server::builder().add_service(health);
    // It ends when it is stopped.
    let _ = server.serve_with_incoming_shutdown(TcpIncoming::from(listener), closing).await;
}
