//! Connections of HTTP: each is served until it ends, falls silent before it asked, or the server
//! leaves.

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

use crate::server::recover;

/// Serves connections until `closing`, then lets those that answer finish. A connection whose next
/// request has no whole head within `silence` is closed, so that nobody holds a descriptor for
/// nothing.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    silence: Duration,
    closing: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(silence);
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
                recover("HTTP", &error).await;
                continue;
            }
        };
        // Without it, replies only come later.
        let _ = socket.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        let connection = open.watch(http.serve_connection(TokioIo::new(socket), service));
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
