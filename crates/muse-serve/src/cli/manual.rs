//! `muse completions` and `muse man`: what shells and `man` read, made from the command line's own
//! description.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;

use super::args::{Cli, CompletionsCommand, ManCommand};
use super::terminal::Screen;

/// Prints the completions of a shell.
pub(super) fn completions(command: &CompletionsCommand) -> Result<ExitCode> {
    // The generator ends the process when it cannot write, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(command.shell, &mut Cli::command(), "muse", &mut script);
    Screen::new().print(&String::from_utf8(script).context("a script of text")?)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a page for `muse` and one for each subcommand, over those that are there.
pub(super) fn pages(command: &ManCommand) -> Result<ExitCode> {
    let folder = command.folder.display();
    let advice = || format!("{folder}: name a folder that is there and can be written");
    clap_mangen::generate_to(Cli::command(), &command.folder).with_context(advice)?;
    Ok(ExitCode::SUCCESS)
}
