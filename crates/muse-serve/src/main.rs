//! The `muse` command.
#![forbid(unsafe_code)]

mod cli;
mod config;
mod logging;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
