//! `muse bench`: how fast a model runs here, beside what the machine could do at most.

mod completion;
mod machine;
mod measure;
mod record;
mod samples;
mod suite;
mod suite_record;

use std::process::ExitCode;

use anyhow::Result;

use super::args::{BenchCommand, Suite};

pub(super) fn run(command: &BenchCommand) -> Result<ExitCode> {
    match command.suite {
        Some(Suite::Canonical) => suite::run(command),
        None => measure::run(command),
    }
}
