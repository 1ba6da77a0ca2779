//! Build tasks of the workspace: `cargo xtask --help` lists them.
//!
//! Depends on no crate of muse, so that it builds in seconds; the heavy jobs are programs of
//! `muse-tests` that it starts.
#![forbid(unsafe_code)]

mod ci;
mod flags;
mod golden;
mod jobs;
mod source;
mod tidy;
mod tools;
mod tt;
mod versus;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use xshell::Shell;

use flags::{Xtask, XtaskCmd};
use jobs::Outcome;

fn main() -> ExitCode {
    // The parser names fields as the flags, and `type` cannot be a field's name.
    let plain = |arg: OsString| if arg == "--type" { "--format".into() } else { arg };
    let args = std::env::args_os().skip(1).map(plain).collect();
    let xtask = Xtask::from_vec(args).unwrap_or_else(|error| error.exit());
    match run(xtask.subcommand) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: XtaskCmd) -> Result<()> {
    let sh = Shell::new()?;
    sh.change_dir(root());
    match command {
        XtaskCmd::Ci(_) => ci::run(&sh),
        XtaskCmd::Tidy(_) => tidy::run(&sh, &root()),
        XtaskCmd::Codegen(flags) => jobs::codegen(&sh, flags.check),
        XtaskCmd::Golden(flags) => golden::run(&root(), flags.check),
        XtaskCmd::Bench(flags) => jobs::bench(&sh, flags.smoke),
        XtaskCmd::Fuzz(flags) => {
            jobs::fuzz(&sh, flags.target.as_deref(), flags.smoke).map(Outcome::report)
        }
        XtaskCmd::Clients(_) => jobs::clients(&sh).map(Outcome::report),
        XtaskCmd::Cases(flags) => jobs::cases(&sh, &flags.file, flags.kind.as_deref()),
        XtaskCmd::Sim(flags) => jobs::sim(&sh, flags.seeds, flags.from.unwrap_or(0)),
        XtaskCmd::TtSetup(flags) => tt::setup(&sh, &flags.folder, flags.check),
        XtaskCmd::TtKernels(flags) => tt::kernels(&sh, flags.tt.as_deref()),
        XtaskCmd::Parity(flags) => tt::parity(&sh, &flags),
        XtaskCmd::Wide(flags) => jobs::wide(&sh, &flags),
        XtaskCmd::Versus(flags) => versus::run(&sh, &flags),
    }
}

/// The workspace, wherever the command was called. Cargo sets the variable at run time; the
/// path known at build time may be another checkout that shares the target directory.
fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR");
    let package = package.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&package).parent().expect("xtask lies in the workspace").to_owned()
}
