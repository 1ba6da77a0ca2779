//! The asynchronous runtime of a command. It would panic, or wait without end, where the system
//! gives no thread or no file descriptor for it; so the limits are tried first.

use std::io;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Runtime};

/// File descriptors that the runtime and its handlers of signals take.
const DESCRIPTORS: usize = 8;
/// Blocking work needs at least this thread, which is kept.
const BLOCKING_THREADS: usize = 1;
/// Longer than any process lives.
const KEEP_ALIVE: Duration = Duration::from_secs(1 << 32);

/// How often, and after how long, it is looked whether threads are removed. Another part of the
/// process may start some meanwhile.
const MAX_REMOVAL_LOOKS: usize = 1000;
const REMOVAL_DELAY: Duration = Duration::from_millis(1);

/// Starts a runtime with so many threads for asynchronous tasks; with none it runs them on the
/// caller's.
///
/// # Errors
/// When the limits on threads or open files are too low; the message names the limit.
pub(super) fn start(workers: usize) -> Result<Runtime> {
    try_descriptors().context("a few open files are needed for requests")?;
    let threads = workers + BLOCKING_THREADS;
    try_threads(threads).with_context(|| format!("{threads} threads are needed for requests"))?;
    let mut builder = match workers {
        0 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    builder.worker_threads(workers.max(1)).thread_keep_alive(KEEP_ALIVE);
    let runtime = builder.enable_all().build()?;
    runtime.block_on(runtime.spawn_blocking(|| ()))?;
    Ok(runtime)
}

fn try_descriptors() -> io::Result<()> {
    let pipes: io::Result<Vec<_>> = (0..DESCRIPTORS.div_ceil(2)).map(|_| io::pipe()).collect();
    pipes.map(drop)
}

/// Runs so many threads at a time.
fn try_threads(count: usize) -> io::Result<()> {
    let before = own_threads();
    let gate = Mutex::new(());
    let started = std::thread::scope(|scope| {
        let closed = gate.lock();
        let wait = || drop(gate.lock());
        let start = |_| std::thread::Builder::new().spawn_scoped(scope, wait).map(drop);
        let started = (0..count).try_for_each(start);
        // The threads end before the scope does.
        drop(closed);
        started
    });
    // Those that have ended count until the system has removed them.
    for _ in 0..MAX_REMOVAL_LOOKS {
        if own_threads() <= before {
            break;
        }
        std::thread::sleep(REMOVAL_DELAY);
    }
    started
}

/// Threads of this process that the system has not removed; none where it does not tell.
fn own_threads() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/task").ok()?.count())
}

/// What to do about an error of the system that comes from a limit; none for other errors.
pub(super) fn advice(error: &io::Error) -> Option<&'static str> {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    match error.raw_os_error()? {
        EMFILE => Some("raise the limit on open files: `ulimit -n`, `LimitNOFILE=` of a unit"),
        ENFILE => Some("the whole system has too many open files: raise fs.file-max"),
        // What a system without threads to give returns.
        _ if error.kind() == io::ErrorKind::WouldBlock => Some(
            "raise the limit on processes and threads: `ulimit -u`, `TasksMax=` of a unit, or the \
             pids limit of a container",
        ),
        _ => None,
    }
}
