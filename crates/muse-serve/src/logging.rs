//! The log of `muse serve` on standard error. Logging never fails and never waits: lines that
//! cannot be written, or come faster than standard error takes them, are dropped.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::Deserialize;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::config;

/// Lines that wait to be written.
const MAX_QUEUED_LINES: usize = 4096;
/// How long [`flush`] waits for a standard error that takes nothing.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

static QUEUE: OnceLock<SyncSender<Job>> = OnceLock::new();
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// Time, level, module and message; coloured on a terminal.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

enum Job {
    Line(Vec<u8>),
    /// Answered when all lines before it are written or dropped.
    Flush(SyncSender<()>),
}

/// Starts the log.
///
/// # Errors
/// For a filter that is malformed or would log nothing of muse.
pub(crate) fn start(filter: &str, format: LogFormat) -> Result<()> {
    let filter = parse(filter)?;
    let (sender, receiver) = sync_channel(MAX_QUEUED_LINES);
    std::thread::Builder::new()
        .name("muse-log".into())
        .spawn(move || write_lines(&receiver))
        .context("starting the thread that writes the log")?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(QueueWriter)
        // It would report failures on standard error, which is what failed.
        .log_internal_errors(false);
    match (QUEUE.set(sender), format) {
        (Err(_), _) => bail!("the log was started before"),
        (Ok(()), LogFormat::Text) => log.with_ansi(config::colours(&io::stderr())).init(),
        (Ok(()), LogFormat::Json) => log.json().flatten_event(true).with_ansi(false).init(),
    }
    Ok(())
}

/// Waits until the lines logged so far are written, but not for long.
pub(crate) fn flush() {
    let Some(queue) = QUEUE.get() else { return };
    let (sender, receiver) = sync_channel(1);
    // A queue that stays full is that of a reader who does not read.
    if queue.try_send(Job::Flush(sender)).is_ok() {
        let _ = receiver.recv_timeout(FLUSH_TIMEOUT);
    }
}

/// Writes a line to standard error, for people. A reader who left changes nothing.
pub(crate) fn print_line(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Reads a filter such as `info,muse=debug`.
fn parse(text: &str) -> Result<EnvFilter> {
    const EXAMPLES: &str = "such as warn, debug or info,muse=debug";
    let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    let filter = EnvFilter::try_new(parts.join(","))
        .with_context(|| format!("--log {text}: not a filter {EXAMPLES}"))?;
    if text == "json" {
        bail!("--log json: that is a format; --log-format json writes JSON");
    }
    if !TARGETS.iter().any(|target| covers(&parts, target)) {
        let errors = "for errors alone use error";
        bail!("--log {text} would log nothing of muse; give a filter {EXAMPLES}, {errors}");
    }
    Ok(filter)
}

/// Crates of muse that log, by the beginnings of their targets.
const TARGETS: [&str; 2] = ["muse::", "muse_serve"];

/// Whether a filter lets something of a crate through. The directive with the longest target that
/// matches it decides, or one for a part of the crate.
fn covers(parts: &[&str], target: &str) -> bool {
    let directives: Vec<(&str, LevelFilter)> = parts.iter().map(|part| directive(part)).collect();
    let whole = directives.iter().filter(|(prefix, _)| target.starts_with(prefix));
    let whole = whole.max_by_key(|(prefix, _)| prefix.len());
    let parts = directives.iter().filter(|(prefix, _)| prefix.starts_with(target));
    whole.into_iter().chain(parts).any(|&(_, level)| level != LevelFilter::OFF)
}

/// Target and level of a directive: `level`, `target` or `target[span]=level`.
fn directive(text: &str) -> (&str, LevelFilter) {
    let (target, level) = match text.split_once('=') {
        Some((target, level)) => (target, level.parse().unwrap_or(LevelFilter::TRACE)),
        None => match text.parse() {
            Ok(level) => ("", level),
            Err(_) => (text, LevelFilter::TRACE),
        },
    };
    (target.split('[').next().unwrap_or_default(), level)
}

fn write_lines(queue: &Receiver<Job>) {
    let mut stderr = io::stderr();
    // A line that shows progress stands where the next one of the log begins.
    let clear = if stderr.is_terminal() { "\r\x1b[K" } else { "" };
    while let Ok(job) = queue.recv() {
        let line = match job {
            Job::Line(line) => line,
            Job::Flush(done) => {
                // The one who waited may have given up.
                let _ = done.try_send(());
                continue;
            }
        };
        let dropped = DROPPED.swap(0, Ordering::Relaxed);
        let mut text = clear.as_bytes().to_vec();
        if dropped > 0 {
            text.extend(format!("({dropped} lines of the log were dropped)\n").bytes());
        }
        text.extend(line);
        if stderr.write_all(&text).is_err() {
            DROPPED.fetch_add(dropped + 1, Ordering::Relaxed);
        }
    }
}

/// Puts each line into the queue.
struct QueueWriter;

impl MakeWriter<'_> for QueueWriter {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        Self
    }
}

impl Write for QueueWriter {
    /// Takes a whole line; the formatter writes no less.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let sent = QUEUE.get().map(|queue| queue.try_send(Job::Line(line.to_vec())));
        if let Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) = sent {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_that_log_something_of_muse_are_taken() {
        for filter in [
            "info",
            "DEBUG",
            "info,muse=debug",
            "muse_serve=debug",
            "muse_serve::kv_disk=trace",
            "muse",
            "h2=off,warn",
            "warn,muse=off,muse_serve::server=info",
            "muse[request]=debug",
            " info , h2=debug",
            "3",
        ] {
            parse(filter).unwrap_or_else(|error| panic!("{filter}: {error:#}"));
        }
    }

    #[test]
    fn filters_that_log_nothing_of_muse_are_refused() {
        for (filter, words) in [
            ("off", "nothing of muse"),
            ("", "nothing of muse"),
            ("inof", "nothing of muse"),
            ("json", "--log-format json"),
            ("muze_serve=debug", "nothing of muse"),
            ("muse=off", "nothing of muse"),
            ("info,muse=off", "nothing of muse"),
            ("h2=trace", "nothing of muse"),
            ("muse=loud", "not a filter"),
        ] {
            let error = format!("{:#}", parse(filter).expect_err(filter));
            assert!(error.contains("--log") && error.contains(words), "{filter}: {error}");
        }
    }
}
