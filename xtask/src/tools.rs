//! Programs that CI needs and a bare machine lacks: installed once, beside the build, in the
//! versions named here.

use std::path::PathBuf;

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

/// A cargo subcommand from the registry.
pub(crate) struct Tool {
    name: &'static str,
    version: &'static str,
}

/// Licences, duplicate versions, sources.
pub(crate) const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };
/// Builds and runs fuzz targets.
pub(crate) const FUZZ: Tool = Tool { name: "cargo-fuzz", version: "0.13.2" };

/// A tool that may be called, or why it may not.
pub(crate) enum Found {
    /// The program.
    At(PathBuf),
    /// The registry cannot be reached, so there is nothing to install from.
    Unreachable(String),
}

impl Tool {
    /// Finds the tool in this version and installs it when it is absent.
    pub(crate) fn find(&self, sh: &Shell) -> Result<Found> {
        let Self { name, version } = self;
        let root = target_directory(sh)?.join("tools");
        let installed = root.join("bin").join(name);
        for program in [PathBuf::from(name), installed.clone()] {
            let has = cmd!(sh, "{program} --version").quiet().ignore_stderr().ignore_status();
            if has.read().is_ok_and(|line| line.split_whitespace().any(|word| word == *version)) {
                return Ok(Found::At(program));
            }
        }
        let spec = format!("{name}@{version}");
        if cmd!(sh, "cargo info --quiet --registry crates-io {spec}")
            .quiet()
            .ignore_stdout()
            .run()
            .is_err()
        {
            return Ok(Found::Unreachable(format!("{spec} cannot be fetched from the registry")));
        }
        // It runs for seconds, so minutes of optimising would never come back.
        let _quick = [
            sh.push_env("CARGO_PROFILE_DEV_OPT_LEVEL", "0"),
            sh.push_env("CARGO_PROFILE_DEV_DEBUG", "false"),
            sh.push_env("CARGO_INCREMENTAL", "0"),
        ];
        let install = cmd!(sh, "cargo install {name} --version {version} --locked --debug");
        install.args(["--no-default-features", "--root"]).arg(&root).run()?;
        Ok(Found::At(installed))
    }
}

/// Where cargo builds, by `CARGO_TARGET_DIR` or else in the tree.
pub(crate) fn target_directory(sh: &Shell) -> Result<PathBuf> {
    let target = metadata(sh)?["target_directory"].as_str().map(PathBuf::from);
    target.context("cargo metadata names no target_directory")
}

/// What cargo knows of the members.
pub(crate) fn metadata(sh: &Shell) -> Result<serde_json::Value> {
    let json = cmd!(sh, "cargo metadata --format-version 1 --no-deps").quiet().read()?;
    serde_json::from_str(&json).context("cargo metadata")
}
