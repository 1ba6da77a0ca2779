//! `muse serve`: the server, until it is told to stop.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use muse_serve::Server;
use muse_serve::runtime::LoadOptions;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use super::args::ServeCommand;
use super::{load, on_failure};
use crate::config::Serving;
use crate::logging;

/// Sequences that run at a time; the cache is sized for as many of full length if memory allows.
const DEFAULT_MAX_PARALLEL: usize = 8;

pub(super) fn run(command: &ServeCommand) -> Result<ExitCode> {
    let Serving { options, log, log_format, target_itl } = command.config.serve(&command.serve)?;
    logging::start(&log, log_format)?;
    let model = command.config.model(&command.model)?;
    Server::check(&options)?;
    let loaded = load(&LoadOptions {
        default_max_parallel: DEFAULT_MAX_PARALLEL,
        target_itl: Some(target_itl),
        ..model
    })?;
    let app = Arc::new(loaded.start(on_failure())?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served: Result<()> = runtime.block_on(async {
        let mut signals = [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
        let name = app.model.name.clone();
        let server = Server::bind(app, options).await?;
        info!(grpc = %server.grpc_addr(), http = %server.http_addr(), "serving {name}");
        let stop = async move {
            told(&mut signals).await;
            info!("stopping when running requests are done; tell it again to stop at once");
            tokio::spawn(async move {
                told(&mut signals).await;
                warn!("stopped at once");
                logging::flush();
                std::process::exit(1);
            });
        };
        Ok(server.run(stop).await?)
    });
    // Work for clients who left is not worth waiting for.
    runtime.shutdown_timeout(Duration::from_secs(1));
    logging::flush();
    served?;
    Ok(ExitCode::SUCCESS)
}

async fn told([interrupt, terminate]: &mut [Signal; 2]) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
