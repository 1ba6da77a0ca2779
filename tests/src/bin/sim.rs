//! Runs simulation seeds: `sim --seeds N [--from S]`. Ends with `N passed, M failed`.

use std::panic::catch_unwind;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use muse_tests::sim::{PlantedFault, run};

fn main() -> Result<ExitCode> {
    let (mut seeds, mut from) = (200, 0);
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let target = match flag.as_str() {
            "--seeds" => &mut seeds,
            "--from" => &mut from,
            _ => bail!("{flag} is not known, expected --seeds N and --from S"),
        };
        let value = args.next().with_context(|| format!("{flag} needs a number"))?;
        *target = value.parse().with_context(|| format!("{flag} {value} is not a number"))?;
    }
    let mut failed = 0;
    for seed in from..from + seeds {
        // A panic has printed its message; it counts like any other violation.
        match catch_unwind(|| run(seed, PlantedFault::Nothing)) {
            Ok(Ok(_)) => {}
            Ok(Err(broken)) => {
                failed += 1;
                println!("seed {seed}: {broken}");
            }
            Err(_) => {
                failed += 1;
                println!("seed {seed}: panicked");
            }
        }
    }
    println!("{} passed, {failed} failed", seeds - failed);
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
