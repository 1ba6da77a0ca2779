//! `tt-setup DIR [--check]`: installs Tenstorrent's packages into a folder, or lists what is
//! missing. Exits with `SKIPPED` when they cannot be installed on this machine.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use muse_parity::{SKIPPED, setup};

const USAGE: &str = "use tt-setup DIR [--check]";

fn main() -> anyhow::Result<ExitCode> {
    let (mut folder, mut check) = (None, false);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--check" => check = true,
            flag if flag.starts_with('-') => bail!("unknown flag {flag}; {USAGE}"),
            path => folder = Some(PathBuf::from(path)),
        }
    }
    let folder = folder.context(USAGE)?;
    if !check {
        return match setup::install(&folder) {
            Ok(_) => Ok(ExitCode::SUCCESS),
            Err(error) if error.is::<setup::Unavailable>() => {
                eprintln!("tt-setup: {error:#}");
                Ok(SKIPPED.into())
            }
            Err(error) => Err(error),
        };
    }
    let missing = setup::check(&folder);
    missing.iter().for_each(|line| println!("tt-setup: {line}"));
    println!("tt-setup: {} missing", missing.len());
    Ok(if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
