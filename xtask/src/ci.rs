//! Everything CI does, in order, stopping at the first failure. A machine with the pinned Rust and
//! a C compiler is enough.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use crate::jobs::{self, Outcome};
use crate::{golden, root, tidy, tools, tt};

/// The README's commands, letter for letter.
const TEST: &str = "cargo test --workspace";
const CHAT: &str = r#"cargo run --release --bin muse -- chat "What is 4 + 5?""#;

struct Step {
    name: &'static str,
    run: fn(&Shell) -> Result<Outcome>,
}

const STEPS: [Step; 16] = [
    Step { name: TEST, run: test },
    Step { name: "fmt", run: |sh| done(cmd!(sh, "cargo fmt --all -- --check").run()) },
    Step { name: "tidy", run: |sh| done(tidy::run(sh, &root())) },
    Step { name: "codegen --check", run: |sh| done(jobs::codegen(sh, true)) },
    Step { name: "clippy", run: clippy },
    Step { name: "each crate alone", run: alone },
    Step { name: "golden --check", run: |_| done(golden::run(&root(), true)) },
    Step { name: "doc", run: doc },
    Step { name: "package", run: jobs::package },
    Step { name: "deny", run: jobs::deny },
    Step { name: CHAT, run: chat },
    Step { name: "clients", run: jobs::clients },
    Step { name: "kernels on aarch64", run: jobs::aarch64 },
    Step { name: "tt-setup, tt-kernels, parity tt --lane wolfpine --quick", run: tt::ci },
    Step { name: "bench --smoke", run: |sh| done(jobs::bench(sh, true)) },
    Step { name: "fuzz --smoke", run: |sh| jobs::fuzz(sh, None, true) },
];

/// Runs all steps and sums up.
pub(crate) fn run(sh: &Shell) -> Result<()> {
    let (mut times, mut skips) = (Vec::new(), Vec::new());
    let began = Instant::now();
    for (at, step) in STEPS.iter().enumerate() {
        println!("\nci: {} of {}: {}", at + 1, STEPS.len(), step.name);
        let began = Instant::now();
        let outcome = (step.run)(sh).with_context(|| format!("ci failed at `{}`", step.name))?;
        println!("ci: {} took {}", step.name, seconds(began.elapsed()));
        times.push((step.name, began.elapsed()));
        if let Outcome::Skipped(reason) = outcome {
            println!("ci: SKIPPED {}: {reason}", step.name);
            skips.push(format!("{}: {reason}", step.name));
        }
    }
    println!("\nci: passed in {}", seconds(began.elapsed()));
    for (name, time) in times {
        println!("{:>10}  {name}", seconds(time));
    }
    println!("ci: {} skipped", skips.len());
    for skip in skips {
        println!("            {skip}");
    }
    Ok(())
}

fn done<E: Into<anyhow::Error>>(result: Result<(), E>) -> Result<Outcome> {
    result.map(|()| Outcome::Done).map_err(Into::into)
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn test(sh: &Shell) -> Result<Outcome> {
    // A missing variant fails; otherwise a machine that never ran it would look tested.
    let _isa = sh.push_env("MUSE_EXPECT_ISA", expected_isa(&cpu_flags()));
    done(cmd!(sh, "sh -c {TEST}").run())
}

/// What the first processor can do, from Linux; nothing elsewhere.
fn cpu_flags() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let is_list = |line: &&str| line.starts_with("flags") || line.starts_with("Features");
    info.lines().find(is_list).unwrap_or_default().to_owned()
}

/// Kernel variants that a processor with these flags must run.
fn expected_isa(flags: &str) -> String {
    let has = |all: &[&str]| all.iter().all(|flag| flags.split_whitespace().any(|f| f == *flag));
    let variants: [(&str, &[&str]); 4] = [
        ("avx2", &["avx2", "fma", "f16c"]),
        ("avx512", &["avx512f", "avx512bw", "avx512vl", "avx512dq"]),
        ("neon", &["asimd"]),
        ("neondot", &["asimd", "asimddp"]),
    ];
    let expected = variants.iter().filter(|(_, needs)| has(needs)).map(|(name, _)| *name);
    expected.collect::<Vec<_>>().join(",")
}

fn clippy(sh: &Shell) -> Result<Outcome> {
    done(cmd!(sh, "cargo clippy --workspace --all-targets -- -D warnings").run())
}

/// A crate that builds only beside its siblings borrows their features.
fn alone(sh: &Shell) -> Result<Outcome> {
    let metadata = tools::metadata(sh)?;
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().context("a package without a name")?;
        cmd!(sh, "cargo check --quiet --package {name}").run()?;
    }
    Ok(Outcome::Done)
}

fn doc(sh: &Shell) -> Result<Outcome> {
    let _deny = sh.push_env("RUSTDOCFLAGS", "-D warnings");
    done(cmd!(sh, "cargo doc --workspace --no-deps").run())
}

fn chat(sh: &Shell) -> Result<Outcome> {
    let answer = cmd!(sh, "sh -c {CHAT}").read()?;
    println!("{answer}");
    ensure!(answer.contains('9'), "the README's chat command must answer 9");
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The commands that the README opens with are steps of CI.
    #[test]
    fn the_readme_opens_with_the_commands_of_ci() {
        let readme = fs::read_to_string(root().join("README.md")).unwrap();
        let (_, block) = readme.split_once("```sh\n").expect("a block of commands");
        let (block, _) = block.split_once("```").expect("the end of the block");
        let commands: Vec<&str> = block.lines().collect();
        assert_eq!(commands, [CHAT, TEST]);
    }

    #[test]
    fn the_isa_expected_is_what_the_processor_has() {
        assert_eq!(expected_isa("flags : sse2 avx2 fma f16c"), "avx2");
        assert_eq!(expected_isa("flags : avx2"), "");
        assert_eq!(expected_isa("Features : fp asimd"), "neon");
        let all = "avx2 fma f16c avx512f avx512bw avx512vl avx512dq";
        assert_eq!(expected_isa(all), "avx2,avx512");
    }
}
