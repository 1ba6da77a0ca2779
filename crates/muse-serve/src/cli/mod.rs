//! The subcommands of `muse`.

mod answer;
mod args;
mod async_runtime;
mod bench;
mod calculator;
mod chat;
mod foreign;
mod generate;
mod inspect;
mod interrupt;
mod link;
mod manual;
mod prompt;
mod quantize;
mod safetensors;
mod serve;
mod standard_input;
mod stream_printer;
mod terminal;
mod tools;
mod version;
mod vision;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use args::{Cli, Command};
use muse_serve::LoadProgress;
use muse_serve::runtime::{self, LoadOptions, Loaded, OnFailure};
use terminal::Progress;

use crate::logging::{self, print_line};

/// Runs the command line. Whatever goes wrong is one line on standard error.
pub(crate) fn run() -> ExitCode {
    let result = match Cli::read().command {
        Command::Serve(command) => serve::run(&command),
        Command::Chat(command) => chat::run(command),
        Command::Generate(command) => generate::run(&command),
        Command::Inspect(command) => inspect::run(&command),
        Command::Quantize(command) => quantize::run(&command),
        Command::Bench(command) => bench::run(&command),
        Command::Completions(command) => manual::completions(&command),
        Command::Man(command) => manual::pages(&command),
        Command::Vision(command) => vision::run(&command),
    };
    match result {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error);
            ExitCode::FAILURE
        }
    }
}

/// Loads a model, showing how far it is.
fn load(options: &LoadOptions) -> Result<Loaded> {
    load_noting(options, &LoadProgress::default())
}

/// The same, noting how far it is in `noted` too.
fn load_noting(options: &LoadOptions, noted: &LoadProgress) -> Result<Loaded> {
    let mut progress = Progress::new();
    let mut show = |what: &str, done, total| {
        noted.set(what, done, total);
        progress.show(what, done as u64, total as u64);
    };
    let loaded = runtime::load(options, &mut show)?;
    progress.clear();
    if loaded.plan.cut_from.is_some() {
        print_line(&format!("note: {}", loaded.plan));
    }
    if let Some(warning) = &loaded.template_warning {
        print_line(&format!("warning: {warning}"));
    }
    Ok(loaded)
}

/// An engine that stopped for good cannot answer anybody: the process ends and says so.
fn on_failure() -> OnFailure {
    Arc::new(|error| {
        print_error(&anyhow::anyhow!("the engine stopped: {error}"));
        std::process::exit(1);
    })
}

/// Says what went wrong, in a line.
fn print_error(error: &anyhow::Error) {
    let mut text = String::new();
    for cause in error.chain().map(|cause| cause.to_string().replace('\n', " ")) {
        // Some errors already tell their cause.
        if !text.contains(&cause) {
            text += if text.is_empty() { "" } else { ": " };
            text += &cause;
        }
    }
    let causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    if let Some(advice) = causes.filter_map(async_runtime::advice).next() {
        text += &format!("; {advice}");
    }
    logging::flush();
    print_line(&format!("error: {}", terminal::sanitize(&text)));
}

/// Whether the reader of the output left, as `head` does: no fault of anybody.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).any(broken)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn an_engine_that_stopped_ends_the_process() {
        const DIES: &str = "MUSE_TEST_DIES";
        if std::env::var_os(DIES).is_some() {
            let source = Arc::new(io::Error::other("bus error"));
            on_failure()(&muse_core::Error::Device { doing: "reading back".into(), source });
            return;
        }
        let this = std::env::current_exe().expect("a path");
        let name = "cli::tests::an_engine_that_stopped_ends_the_process";
        let args = ["--exact", name, "--nocapture"];
        let out = Command::new(this).args(args).env(DIES, "1").output().expect("it starts");
        // A test that went on would end well, one that panicked with 101.
        assert_eq!(out.status.code(), Some(1));
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(
            stderr.contains("error: the engine stopped") && stderr.contains("bus error"),
            "{stderr}"
        );
    }
}
