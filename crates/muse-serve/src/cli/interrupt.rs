//! What is left to do when a signal ends a command that writes files.

use std::io;
use std::pin::pin;
use std::task::Poll;

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::async_runtime;

/// Removes incomplete files when SIGINT, SIGTERM or SIGHUP ends this process, unless whoever
/// started it had the signal ignored, as `nohup` does. The exit code is that of a shell: 128 and the
/// number of the signal.
pub(super) fn remove_incomplete_files() -> Result<()> {
    let runtime = async_runtime::start(0)?;
    let ignored = ignored_signals();
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let heeded = kinds.into_iter().filter(|kind| ignored >> (kind.as_raw_value() - 1) & 1 == 0);
    let mut signals: Vec<(SignalKind, Signal)> = {
        let _context = runtime.enter();
        heeded.map(|kind| Ok((kind, signal(kind)?))).collect::<io::Result<_>>()?
    };
    let wait = move || {
        let kind = runtime.block_on(pin!(std::future::poll_fn(|context| {
            let come = |(kind, signal): &mut (SignalKind, Signal)| {
                signal.poll_recv(context).is_ready().then_some(*kind)
            };
            signals.iter_mut().find_map(come).map_or(Poll::Pending, Poll::Ready)
        })));
        muse_weights::remove_incomplete_files();
        std::process::exit(128 + kind.as_raw_value());
    };
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(wait).context("a thread that waits for signals")?;
    Ok(())
}

/// The signals that this process ignores, a bit each, the lowest for signal 1. None where the system
/// does not say.
pub(super) fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
