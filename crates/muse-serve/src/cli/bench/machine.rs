//! The machine that a record comes from, as far as the system tells.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;

use serde_json::{Value, json};

/// Threads that compute when nobody says how many.
pub(super) fn cores() -> usize {
    available_parallelism().map_or(1, NonZeroUsize::get)
}

/// What tells this machine from others.
pub(super) fn describe() -> Value {
    json!({
        "cpu": field("/proc/cpuinfo", "model name"),
        "cores": cores(),
        "arch": std::env::consts::ARCH,
        "os": std::env::consts::OS,
    })
}

/// Processes that wanted to run over the last minute, on average: others' work shows here.
pub(super) fn load_average() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Bytes of memory that this process holds, mapped files included.
pub(super) fn resident() -> Option<u64> {
    let kib: u64 = field("/proc/self/status", "VmRSS")?.strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The first value of a name in a file of `name: value` lines.
fn field(file: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}
