//! The `muse` command.
#![forbid(unsafe_code)]

mod cli;
mod config;
mod logging;

use std::process::ExitCode;

// That of glibc keeps most of what large requests took, for good: see the numbers in deploy/README.md.
#[cfg(all(feature = "jemalloc", target_os = "linux"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    cli::run()
}
