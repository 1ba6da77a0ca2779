//! `muse serve`: the server, until a signal stops it.

use std::future::poll_fn;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::Result;
use muse_serve::runtime::LoadOptions;
use muse_serve::{App, LoadProgress, LoadingServer};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tracing::{debug, info, warn};

use super::args::ServeCommand;
use super::{async_runtime, interrupt, load_noting, on_failure};
use crate::config::Serving;
use crate::logging;

/// Sequences that run at a time; the cache is sized for as many of full length if memory allows.
const DEFAULT_MAX_PARALLEL: usize = 8;

pub(super) fn run(command: &ServeCommand) -> Result<ExitCode> {
    let Serving { options, log, log_format, target_itl, max_queued_requests, names } =
        command.config.serve(&command.serve)?;
    logging::start(&log, log_format)?;
    let model = command.config.model(&command.model())?;
    let runtime = async_runtime::start(available_parallelism().map_or(1, usize::from))?;
    let progress = LoadProgress::default();
    let loading = runtime.block_on(LoadingServer::bind(options, progress.clone()))?;
    let (serving, stopped) = runtime.block_on(async { watch_signals() })?;
    debug!(grpc_addr = %loading.grpc_addr(), http_addr = %loading.http_addr(), "listening");
    let load_options = LoadOptions {
        default_max_parallel: DEFAULT_MAX_PARALLEL,
        max_queued_requests: Some(max_queued_requests),
        target_itl,
        ..model
    };
    let loaded = load_noting(&load_options, &progress)?;
    let app = Arc::new(App { names, ..loaded.start(on_failure())? });
    let served: Result<()> = runtime.block_on(async {
        let name = app.model.name.clone();
        let server = loading.serve(app).await;
        serving.store(true, Ordering::Relaxed);
        return_free_memory();
        info!(grpc = %server.grpc_addr(), http = %server.http_addr(), "serving {name}");
        info!("try: muse chat --server {} \"Hello\"", server.grpc_addr());
        // An error means that nobody will ask to stop.
        Ok(server.run(async { stopped.await.unwrap_or_default() }).await?)
    });
    // Work for clients who left is not worth waiting for.
    runtime.shutdown_timeout(Duration::from_secs(1));
    logging::flush();
    served?;
    Ok(ExitCode::SUCCESS)
}

/// Lets a thread of the allocator return free memory to the system. Without it memory is returned
/// only as more is allocated. It starts last: where no more threads are allowed, it is the one to miss.
fn return_free_memory() {
    #[cfg(all(feature = "jemalloc", target_os = "linux"))]
    if let Err(error) = tikv_jemalloc_ctl::background_thread::write(true) {
        warn!("memory of ended requests is returned late: {error}");
    }
}

/// Waits for signals in a task. While nothing is served, a signal ends the process at once. The first
/// one after that, when the returned flag is set, makes the receiver ready; the second ends the
/// process at once.
fn watch_signals() -> Result<(Arc<AtomicBool>, oneshot::Receiver<()>)> {
    let mut signals = stop_signals()?;
    let serving = Arc::new(AtomicBool::new(false));
    let (stop, stopped) = oneshot::channel();
    let flag = Arc::clone(&serving);
    tokio::spawn(async move {
        next_signal(&mut signals).await;
        if !flag.load(Ordering::Relaxed) {
            info!("stopped while the model was being loaded");
            logging::flush();
            std::process::exit(0);
        }
        info!("stopping when running requests are done; tell it again to stop at once");
        // The server may have ended by itself.
        let _ = stop.send(());
        next_signal(&mut signals).await;
        warn!("stopped at once");
        logging::flush();
        std::process::exit(1);
    });
    Ok((serving, stopped))
}

/// The signals that stop the server: SIGINT, SIGTERM, and SIGHUP unless it was ignored from the
/// start, as under nohup.
fn stop_signals() -> std::io::Result<Vec<Signal>> {
    let mut kinds = vec![SignalKind::interrupt(), SignalKind::terminate()];
    // Bit 0 is signal 1, SIGHUP.
    if interrupt::ignored_signals() & 1 == 0 {
        kinds.push(SignalKind::hangup());
    }
    kinds.into_iter().map(signal).collect()
}

/// Waits for any of the signals.
async fn next_signal(signals: &mut [Signal]) {
    poll_fn(|context| {
        let received = |signal: &mut Signal| signal.poll_recv(context).is_ready();
        if signals.iter_mut().any(received) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
