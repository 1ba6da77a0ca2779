//! `muse inspect`: what a checkpoint holds, and what is missing or unusual.

use std::process::ExitCode;

use anyhow::Result;

use super::args::InspectCommand;
use super::terminal::Screen;

pub(super) fn run(command: &InspectCommand) -> Result<ExitCode> {
    let report = muse_weights::inspect(&command.path)?;
    Screen::new().say(&format!("{report}\n"))?;
    Ok(ExitCode::SUCCESS)
}
