//! Jobs that other programs do: this file knows how they are called.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use crate::flags::Wide;
use crate::tools::{self, Found, Tool};

/// How a job ended, if it did not fail.
pub(crate) enum Outcome {
    /// It ran.
    Done,
    /// It could not run here, and why.
    Skipped(String),
}

impl Outcome {
    /// Prints why a job that was called by name did not run.
    pub(crate) fn report(self) {
        if let Self::Skipped(reason) = self {
            eprintln!("SKIPPED: {reason}");
        }
    }
}

const FUZZ_FOLDER: &str = "tests/fuzz";
const SMOKE_SECONDS: u32 = 5;
/// The release of the Python client `openai` that is tried.
const OPENAI_CLIENT: &str = "3.57.0";

/// Builds a program of the workspace, with what of it needs Tenstorrent's parts where they are
/// there. By package, dependencies would be built again with the features that it alone asks for.
pub(crate) fn program(sh: &Shell, name: &str, tenstorrent: bool) -> Result<PathBuf> {
    let features = ["--features", "muse-parity/tt"];
    let features = tenstorrent.then_some(features).into_iter().flatten();
    cmd!(sh, "cargo build --quiet --workspace --bin {name} {features...}").run()?;
    Ok(tools::target_directory(sh)?.join("debug").join(name))
}

/// Runs a program of the workspace.
pub(crate) fn job(sh: &Shell, name: &str, args: &[String]) -> Result<()> {
    let program = program(sh, name, false)?;
    Ok(cmd!(sh, "{program} {args...}").run()?)
}

/// Generates muse-proto, or checks that it is generated.
pub(crate) fn codegen(sh: &Shell, check: bool) -> Result<()> {
    let args: Vec<String> = check.then(|| "--check".to_owned()).into_iter().collect();
    job(sh, "muse-codegen", &args)
}

/// Runs protocol cases.
pub(crate) fn cases(sh: &Shell, file: &Path, kind: Option<&str>) -> Result<()> {
    let mut args = vec![file.to_string_lossy().into_owned()];
    args.extend(kind.into_iter().flat_map(|kind| ["--kind".to_owned(), kind.to_owned()]));
    job(sh, "cases", &args)
}

/// Runs the official Python client of OpenAI, in an environment of its own, against the server.
pub(crate) fn clients(sh: &Shell) -> Result<Outcome> {
    if cmd!(sh, "python3 --version").quiet().ignore_stdout().run().is_err() {
        return Ok(Outcome::Skipped("the clients need `python3`".into()));
    }
    let metadata = tools::metadata(sh)?;
    let target = metadata["target_directory"].as_str().context("no target directory")?;
    let folder = Path::new(target).join("clients");
    let python = folder.join("bin/python");
    let client = format!("openai=={OPENAI_CLIENT}");
    let has = |module: &str| {
        let import = format!("import sys, {module}; sys.exit({module}.__version__ != sys.argv[1])");
        let check = cmd!(sh, "{python} -c {import} {OPENAI_CLIENT}");
        python.exists() && check.quiet().ignore_stderr().run().is_ok()
    };
    if !has("openai") {
        if cmd!(sh, "python3 -m venv --clear {folder}").run().is_err() {
            return Ok(Outcome::Skipped("`python3 -m venv` does not work here".into()));
        }
        let install = cmd!(sh, "{python} -m pip install --quiet --retries 1 --timeout 20 {client}");
        if install.run().is_err() {
            return Ok(Outcome::Skipped(format!("the registry does not hand out {client}")));
        }
    }
    let _python = sh.push_env("MUSE_CLIENTS_PYTHON", &python);
    cmd!(sh, "cargo test --quiet --workspace --test clients -- --nocapture").run()?;
    Ok(Outcome::Done)
}

/// Runs simulation seeds.
pub(crate) fn sim(sh: &Shell, seeds: u64, from: u64) -> Result<()> {
    job(sh, "sim", &["--seeds".into(), seeds.to_string(), "--from".into(), from.to_string()])
}

/// Writes a random checkpoint.
pub(crate) fn wide(sh: &Shell, flags: &Wide) -> Result<()> {
    let mut args = vec!["--layers".to_owned(), flags.layers.to_string()];
    args.extend(["--type".to_owned(), flags.format.clone()]);
    args.extend(flags.head.iter().flat_map(|head| ["--head".to_owned(), head.clone()]));
    // The shell stands in the workspace, the caller elsewhere.
    let out = std::path::absolute(&flags.out)?.to_string_lossy().into_owned();
    args.extend(["--out".to_owned(), out]);
    job(sh, "wide", &args)
}

/// Runs every bench of the workspace. By package: together they would build the server's dependencies
/// again, with the features that tests of the others ask for.
pub(crate) fn bench(sh: &Shell, smoke: bool) -> Result<()> {
    let metadata = tools::metadata(sh)?;
    let smoke = smoke.then_some("--smoke");
    let mut found = false;
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let targets = package["targets"].as_array().into_iter().flatten();
        let benches: Vec<&str> = targets
            .filter(|target| target["kind"][0] == "bench")
            .filter_map(|target| target["name"].as_str())
            .flat_map(|name| ["--bench", name])
            .collect();
        if !benches.is_empty() {
            let name = package["name"].as_str().context("a package without a name")?;
            cmd!(sh, "cargo bench --quiet --package {name} {benches...} -- {smoke...}").run()?;
            found = true;
        }
    }
    ensure!(found, "no bench targets in the workspace");
    Ok(())
}

/// Tests the kernels of the other architecture in an emulator of its user mode; without one they are
/// compiled at least.
pub(crate) fn aarch64(sh: &Shell) -> Result<Outcome> {
    const TARGET: &str = "aarch64-unknown-linux-gnu";
    let has = |program: &str| {
        cmd!(sh, "{program} --version").quiet().ignore_stdout().ignore_stderr().run().is_ok()
    };
    let library = cmd!(sh, "rustc --print target-libdir --target {TARGET}").quiet().read()?;
    if !Path::new(&library).exists() {
        return Ok(Outcome::Skipped(format!("no standard library: rustup target add {TARGET}")));
    }
    if !has("qemu-aarch64") || !has("aarch64-linux-gnu-gcc") {
        cmd!(sh, "cargo check --package muse-cpu --target {TARGET}").run()?;
        return Ok(Outcome::Skipped(
            "compiled, not run: apt-get install qemu-user gcc-aarch64-linux-gnu \
             libc6-dev-arm64-cross"
                .into(),
        ));
    }
    let _linker =
        sh.push_env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    let _runner = sh.push_env(
        "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
        "qemu-aarch64 -L /usr/aarch64-linux-gnu",
    );
    let _isa = sh.push_env("MUSE_EXPECT_ISA", "neon,neondot");
    let test = cmd!(sh, "cargo test --package muse-cpu --target {TARGET} --lib --test backend");
    test.args(["--", "kernels", "quant", "expected_instruction_sets"]).run()?;
    Ok(Outcome::Done)
}

/// Fuzzes the readers of untrusted files.
pub(crate) fn fuzz(sh: &Shell, target: Option<&str>, smoke: bool) -> Result<Outcome> {
    if cmd!(sh, "c++ --version").quiet().ignore_stdout().run().is_err() {
        return Ok(Outcome::Skipped("libFuzzer needs a C++ compiler `c++`".into()));
    }
    let fuzz = match tools::FUZZ.find(sh)? {
        Found::At(program) => program,
        Found::Unreachable(reason) => return Ok(Outcome::Skipped(reason)),
    };
    let manifest = format!("{FUZZ_FOLDER}/Cargo.toml");
    // Or a build would change the lock file, and with it what was tested.
    cmd!(sh, "cargo metadata --locked --format-version 1 --manifest-path {manifest}")
        .quiet()
        .ignore_stdout()
        .run()
        .context(
            "tests/fuzz/Cargo.lock is behind the workspace: run `cargo metadata` in tests/fuzz",
        )?;
    // Sanitizers are unstable; the pinned compiler accepts their flags with this variable.
    let _unstable = sh.push_env("RUSTC_BOOTSTRAP", "1");
    let targets = match target {
        Some(target) => vec![target.to_owned()],
        None => {
            let list = cmd!(sh, "{fuzz} list --fuzz-dir {FUZZ_FOLDER}").quiet().read()?;
            list.lines().map(str::to_owned).collect()
        }
    };
    ensure!(!targets.is_empty(), "{FUZZ_FOLDER} has no targets");
    let limit = smoke.then(|| format!("-max_total_time={SMOKE_SECONDS}"));
    for target in targets {
        let limit = limit.as_ref();
        cmd!(sh, "{fuzz} run --fuzz-dir {FUZZ_FOLDER} {target} -- {limit...}").run()?;
    }
    Ok(Outcome::Done)
}

/// Checks licences, duplicate versions and sources of all dependencies.
pub(crate) fn deny(sh: &Shell) -> Result<Outcome> {
    let deny: &Tool = &tools::DENY;
    match deny.find(sh)? {
        // Advisories are left out: they change without us and need their database.
        Found::At(deny) => {
            cmd!(sh, "{deny} check licenses bans sources").run().context("see deny.toml")?;
            Ok(Outcome::Done)
        }
        Found::Unreachable(reason) => Ok(Outcome::Skipped(reason)),
    }
}

/// Packages every library as a registry would get it: metadata, README and versions are there.
pub(crate) fn package(sh: &Shell) -> Result<Outcome> {
    let metadata = tools::metadata(sh)?;
    let names = published(&metadata);
    ensure!(!names.is_empty(), "no package of the workspace may be published");
    // Not verified: the other steps have built the same sources.
    let mut args = vec!["package", "--quiet", "--no-verify", "--allow-dirty"];
    args.extend(names.iter().flat_map(|name| ["--package", *name]));
    // The registry is asked only for what earlier steps did not fetch.
    let offline = cmd!(sh, "cargo").args(&args).arg("--offline").quiet().ignore_status();
    if !offline.output()?.status.success() {
        cmd!(sh, "cargo").args(&args).run()?;
    }
    println!("packaged {}", names.join(", "));
    Ok(Outcome::Done)
}

/// Packages whose manifest allows a registry.
fn published(metadata: &serde_json::Value) -> Vec<&str> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let allowed = packages.filter(|package| package["publish"].is_null());
    allowed.filter_map(|package| package["name"].as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_that_refuse_every_registry_are_not_published() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "library", "publish": null },
            { "name": "tool", "publish": [] },
        ]});
        assert_eq!(published(&metadata), ["library"]);
    }
}
