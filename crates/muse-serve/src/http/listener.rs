//! Accepts HTTP connections. Each is served until it ends, stays idle for too long, or the server
//! closes.

use std::future::Future;
use std::io;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tracing::debug;

use super::exchange::Exchange;
use super::socket::HttpSocket;
use crate::server::on_accept_error;

/// Serves connections until `closing`, then lets requests in progress finish. A connection that
/// has not sent the whole head of its next request within `keep_alive` is closed, so that idle
/// clients do not use up file descriptors.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    keep_alive: Duration,
    closing: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(keep_alive);
    let open = GracefulShutdown::new();
    tokio::pin!(closing);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut closing => break,
        };
        let socket = match accepted {
            Ok((socket, _)) => socket,
            Err(error) => {
                on_accept_error("HTTP", &error).await;
                continue;
            }
        };
        // When it fails, replies are only delayed.
        let _ = socket.set_nodelay(true);
        let exchange = Exchange::default();
        let service = exchange.wrap(TowerToHyperService::new(router.clone()));
        let socket = TokioIo::new(HttpSocket::new(socket, exchange));
        let connection = open.watch(http.serve_connection(socket, service));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!("connection: {error}");
            }
        });
    }
    drop(listener);
    open.shutdown().await;
    Ok(())
}
