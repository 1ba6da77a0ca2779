//! `tt-setup DIR [--check]`: installs Tenstorrent's parts into a folder, or says what is missing.
//! Ends with `SKIPPED` when the machine cannot have them.

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
    let lacks = setup::check(&folder);
    lacks.iter().for_each(|lack| println!("tt-setup: {lack}"));
    println!("tt-setup: {} missing", lacks.len());
    Ok(if lacks.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
