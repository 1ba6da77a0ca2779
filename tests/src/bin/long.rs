//! Finds needles at the start, in the middle and at the end of a long prompt:
//! `long [--tokens N]`, all 131,072 positions without it.

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use muse_tests::haystack::search;

fn main() -> Result<ExitCode> {
    let mut args = std::env::args().skip(1);
    let mut tokens = 131_072;
    if let Some(flag) = args.next() {
        ensure!(flag == "--tokens", "{flag} is not known, expected --tokens N");
        let value = args.next().context("--tokens needs a number")?;
        tokens = value.parse().with_context(|| format!("--tokens {value} is not a number"))?;
    }
    ensure!(tokens > 10, "--tokens {tokens}, three needles need at least 11");
    let mut lost = false;
    for found in search(tokens, 1, None)? {
        let right = found.answer == found.expected;
        lost |= !right;
        println!(
            "needle at {} of {tokens}: {} ({:?}, {} rows cached, {:.1} s)",
            found.position,
            if right { "found" } else { "LOST" },
            found.answer,
            found.cached,
            found.took.as_secs_f64()
        );
    }
    Ok(if lost { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
