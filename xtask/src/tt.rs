//! The jobs that need Tenstorrent's packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use crate::flags::Parity;
use crate::jobs::{Outcome, job, program};
use crate::tools;

/// Installs Tenstorrent's packages, or lists what is missing if `check` is set.
pub(crate) fn setup(sh: &Shell, folder: &Path, check: bool) -> Result<()> {
    let mut args = vec![std::path::absolute(folder)?.to_string_lossy().into_owned()];
    args.extend(check.then(|| "--check".to_owned()));
    job(sh, "tt-setup", &args)
}

/// Exit status of `tt-setup` and `parity-tt` when the machine lacks what they need.
const SKIPPED: i32 = 3;

/// Installs the packages into the build folder, tests the bindings and the faults of a device,
/// compiles the largest configuration of every kernel, and runs the smallest ones in the simulator.
pub(crate) fn ci(sh: &Shell) -> Result<Outcome> {
    let folder = tools::target_directory(sh)?.join("tenstorrent");
    let program = program(sh, "tt-setup", false)?;
    let setup = cmd!(sh, "{program} {folder}").ignore_status().output()?;
    let message = String::from_utf8_lossy(&setup.stderr).trim().to_owned();
    if setup.status.code() == Some(SKIPPED) {
        return Ok(Outcome::Skipped(message));
    }
    ensure!(setup.status.success(), "tt-setup failed: {message}");
    let _packages = sh.push_env("MUSE_TT_DIR", std::path::absolute(&folder)?);
    cmd!(sh, "cargo test --quiet --package muse-tt-sys --features tt --lib").run()?;
    cmd!(sh, "cargo test --quiet --workspace --features muse-parity/tt --test faults").run()?;
    // All configurations take minutes to compile: `tt-kernels` compiles them on demand.
    let compiled = run(sh, Some(&folder), "mock", None, &["--brief"])?;
    let compared = run(sh, Some(&folder), "wolfpine", None, &["--quick"])?;
    Ok(if matches!(compiled, Outcome::Done) { compared } else { compiled })
}

/// Compiles every kernel in every configuration.
pub(crate) fn kernels(sh: &Shell, folder: Option<&Path>) -> Result<()> {
    run(sh, folder, "mock", None, &[]).map(Outcome::report)
}

/// Compares kernels with the CPU.
pub(crate) fn parity(sh: &Shell, flags: &Parity) -> Result<()> {
    ensure!(flags.device == "tt", "there are no kernels for {}, only for tt", flags.device);
    let filters = [(flags.quick, "--quick"), (flags.cost, "--cost")].into_iter();
    let filters: Vec<&str> = filters.filter_map(|(is_set, flag)| is_set.then_some(flag)).collect();
    run(sh, flags.tt.as_deref(), &flags.lane, flags.case.as_deref(), &filters).map(Outcome::report)
}

fn run(
    sh: &Shell,
    folder: Option<&Path>,
    lane: &str,
    case: Option<&str>,
    filters: &[&str],
) -> Result<Outcome> {
    let folder =
        folder.map(Path::to_owned).or_else(|| std::env::var_os("MUSE_TT_DIR").map(PathBuf::from));
    let folder = folder.context(
        "give --tt DIR or set MUSE_TT_DIR to the folder that `cargo xtask tt-setup DIR` made",
    )?;
    let folder = std::path::absolute(folder)?;
    let mut args = vec!["--lane".to_owned(), lane.to_owned()];
    args.extend(case.into_iter().flat_map(|case| ["--case".to_owned(), case.to_owned()]));
    args.extend(filters.iter().map(|flag| (*flag).to_owned()));
    let _packages = sh.push_env("MUSE_TT_DIR", folder);
    let program = program(sh, "parity-tt", true)?;
    let status = Command::from(cmd!(sh, "{program} {args...}")).status()?;
    if status.code() == Some(SKIPPED) {
        return Ok(Outcome::Skipped(format!("lane {lane} cannot run here: see the reason above")));
    }
    ensure!(status.success(), "parity-tt on lane {lane} ended with {status}");
    Ok(Outcome::Done)
}
