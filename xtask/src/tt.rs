//! The jobs around Tenstorrent's parts.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use crate::flags::Parity;
use crate::jobs::{Outcome, job, program};
use crate::tools;

/// Installs Tenstorrent's parts, or says what is missing.
pub(crate) fn setup(sh: &Shell, folder: &Path, check: bool) -> Result<()> {
    let mut args = vec![std::path::absolute(folder)?.to_string_lossy().into_owned()];
    args.extend(check.then(|| "--check".to_owned()));
    job(sh, "tt-setup", &args)
}

/// What `tt-setup` and `parity-tt` end with when the machine lacks what they need.
const SKIPPED: i32 = 3;

/// Installs the parts beside the build, tests the bindings and what goes wrong with a device,
/// compiles the largest configuration of every kernel, and runs the smallest in the simulator.
pub(crate) fn ci(sh: &Shell) -> Result<Outcome> {
    let folder = tools::target_directory(sh)?.join("tenstorrent");
    let program = program(sh, "tt-setup", false)?;
    let setup = cmd!(sh, "{program} {folder}").ignore_status().output()?;
    let said = String::from_utf8_lossy(&setup.stderr).trim().to_owned();
    if setup.status.code() == Some(SKIPPED) {
        return Ok(Outcome::Skipped(said));
    }
    ensure!(setup.status.success(), "tt-setup failed: {said}");
    let _parts = sh.push_env("MUSE_TT_DIR", std::path::absolute(&folder)?);
    cmd!(sh, "cargo test --quiet --package muse-tt-sys --features tt --lib").run()?;
    cmd!(sh, "cargo test --quiet --workspace --features muse-parity/tt --test faults").run()?;
    // All configurations take minutes to compile: `tt-kernels` does it by hand.
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
    let chosen = [(flags.quick, "--quick"), (flags.cost, "--cost")].into_iter();
    let more: Vec<&str> = chosen.filter_map(|(is, flag)| is.then_some(flag)).collect();
    run(sh, flags.tt.as_deref(), &flags.lane, flags.case.as_deref(), &more).map(Outcome::report)
}

fn run(
    sh: &Shell,
    folder: Option<&Path>,
    lane: &str,
    case: Option<&str>,
    more: &[&str],
) -> Result<Outcome> {
    let folder =
        folder.map(Path::to_owned).or_else(|| std::env::var_os("MUSE_TT_DIR").map(PathBuf::from));
    let folder = folder.context(
        "say --tt DIR or set MUSE_TT_DIR to the folder that `cargo xtask tt-setup DIR` made",
    )?;
    let folder = std::path::absolute(folder)?;
    let mut args = vec!["--lane".to_owned(), lane.to_owned()];
    args.extend(case.into_iter().flat_map(|case| ["--case".to_owned(), case.to_owned()]));
    args.extend(more.iter().map(|flag| (*flag).to_owned()));
    let _parts = sh.push_env("MUSE_TT_DIR", folder);
    let program = program(sh, "parity-tt", true)?;
    let status = Command::from(cmd!(sh, "{program} {args...}")).status()?;
    if status.code() == Some(SKIPPED) {
        return Ok(Outcome::Skipped(format!(
            "lane {lane} cannot run here: see what it says above"
        )));
    }
    ensure!(status.success(), "parity-tt on lane {lane} ended with {status}");
    Ok(Outcome::Done)
}
