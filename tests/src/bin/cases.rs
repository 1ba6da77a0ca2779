//! `cases FILE.jsonl [--kind K]`: runs a file of protocol cases and says how many passed.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use muse_tests::cases::{self, Outcome};

fn main() -> anyhow::Result<ExitCode> {
    let (mut file, mut kind) = (None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--kind" => kind = Some(arguments.next().context("--kind needs a kind")?),
            flag if flag.starts_with('-') => {
                bail!("unknown flag {flag}; use FILE.jsonl [--kind K]")
            }
            path => file = Some(PathBuf::from(path)),
        }
    }
    let file = file.context("no file given; use FILE.jsonl [--kind K]")?;
    let tokenizer = cases::nano_tokenizer()?;
    let (mut passed, mut skipped, mut failed) = (0, 0, Vec::new());
    for case in cases::read(&file)? {
        if kind.as_ref().is_some_and(|kind| *kind != case.kind) {
            continue;
        }
        match cases::run(&case, &tokenizer) {
            Outcome::Passed => passed += 1,
            Outcome::Skipped(reason) => {
                skipped += 1;
                println!("skipped {}: {reason}", case.id);
            }
            Outcome::Failed(how) => {
                println!("FAILED {}: {how}", case.id);
                failed.push(case.id);
            }
        }
    }
    if skipped > 0 {
        println!("{skipped} skipped");
    }
    println!("{passed} passed, {} failed{}", failed.len(), names(&failed));
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn names(failed: &[String]) -> String {
    if failed.is_empty() { String::new() } else { format!(": {}", failed.join(" ")) }
}
