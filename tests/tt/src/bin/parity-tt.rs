//! `parity-tt --lane mock|wolfpine|sim|card --tt DIR [--case NAME] [--quick] [--brief] [--cost]`: every
//! kernel against the CPU, a process a case, for an error of a simulator ends its process. `--brief`
//! takes the largest case of each kind. Ends with `SKIPPED` when the lane cannot run here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use muse_parity::SKIPPED;
use muse_parity::cases::{self, Case};
use muse_parity::choice::{Choice, Chosen};
use muse_parity::lane::{Lane, SIMULATOR};
use muse_parity::process::{self, Limit};
use muse_parity::report::{Lines, fault};
use muse_parity::setup::Environment;
use muse_tt::{Device, DeviceOptions};

const USAGE: &str = "use --lane mock|wolfpine|sim|card [--tt DIR, else MUSE_TT_DIR] [--case NAME] [--quick] \
     [--brief] [--cost]";
/// Marks the line of a child that says how it went.
const RESULT: &str = "parity: ";

struct Options {
    lane: Lane,
    folder: PathBuf,
    choice: Choice,
    child: bool,
}

fn options() -> Result<Options> {
    let (mut lane, mut folder, mut child) = (None, None, false);
    let mut choice = Choice::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let mut value =
            || arguments.next().with_context(|| format!("{flag} needs a value; {USAGE}"));
        match flag.as_str() {
            "--lane" => lane = Some(Lane::named(&value()?)?),
            "--tt" => folder = Some(PathBuf::from(value()?)),
            "--case" => choice.case = Some(value()?),
            "--quick" => choice.quick = true,
            "--brief" => choice.brief = true,
            "--cost" => choice.cost = true,
            "--child" => child = true,
            _ => bail!("unknown flag {flag}; {USAGE}"),
        }
    }
    let folder = folder.or_else(|| std::env::var_os("MUSE_TT_DIR").map(PathBuf::from));
    Ok(Options { lane: lane.context(USAGE)?, folder: folder.context(USAGE)?, choice, child })
}

fn main() -> Result<ExitCode> {
    let options = options()?;
    if options.child {
        return child(&options);
    }
    let Chosen { cases, uncounted } = options.choice.of(cases::all())?;
    for name in uncounted {
        println!("parity: SKIPPED {name}: it runs programs of others, which count there");
    }
    let parts = Environment::read(&options.folder)?;
    let simulator = std::env::var(SIMULATOR).ok();
    let environment = match options.lane.environment(&parts, simulator.as_deref()) {
        Ok(environment) => environment,
        Err(reason) => {
            eprintln!("parity: SKIPPED lane {}: {reason}", options.lane);
            return Ok(SKIPPED.into());
        }
    };
    let (wanted, skipped): (Vec<Case>, Vec<Case>) =
        cases.into_iter().partition(|case| options.lane.lacks(case.needs).is_none());
    let named = wanted.iter().map(|case| (case.name.as_str(), case.needs.limit()));
    let failed = run_all(&options, &environment, &named.collect::<Vec<_>>())?;
    let mut reasons = BTreeMap::new();
    for reason in skipped.iter().filter_map(|case| options.lane.lacks(case.needs)) {
        *reasons.entry(reason).or_insert(0) += 1;
    }
    for (reason, count) in reasons {
        println!("parity: SKIPPED {count} cases: lane {} {reason}", options.lane);
    }
    println!("{} passed, {failed} failed", wanted.len() - failed);
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs cases, as many at once as there are processors; how many failed.
fn run_all(
    options: &Options,
    environment: &[(String, String)],
    cases: &[(&str, Limit)],
) -> Result<usize> {
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let lines = Mutex::new(Lines::default());
    let work = || -> Result<()> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((name, limit)) = cases.get(at) else { return Ok(()) };
            let began = Instant::now();
            let (passes, said) = match spawn(options, environment, name, *limit)? {
                Ok(line) => (line.starts_with("ok"), line),
                Err(line) => (false, format!("FAILED {line}")),
            };
            failed.fetch_add(usize::from(!passes), Ordering::Relaxed);
            let line = format!("{name:<34} {said}  {:.1} s", began.elapsed().as_secs_f64());
            let mut lines = lines.lock().expect("nobody panics while he says a line");
            lines.add(at, line).iter().for_each(|line| println!("{line}"));
        }
    };
    let threads = thread::available_parallelism()?.get();
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().try_for_each(|thread| thread.join().expect("a case's thread ends"))
    })?;
    Ok(failed.into_inner())
}

/// Runs one case here.
fn child(options: &Options) -> Result<ExitCode> {
    let name = options.choice.case.as_deref().context("a child has one case")?;
    let case = cases::all().into_iter().find(|case| case.name == name).context("no such case")?;
    let trace_bytes = options.lane.trace_bytes();
    // The process has a limit of its own, and every case tries the device.
    let options_of =
        DeviceOptions { trace_bytes, patience: None, smoke: false, ..Default::default() };
    let device = Device::open(muse_tt::open_shim()?, options_of)?;
    let (outcome, price) = case.run(&device, options.choice.cost)?;
    let (passes, said) = match (options.lane.computes(), price) {
        (false, _) => (true, "compiles".to_owned()),
        (true, None) => (outcome.passes(), outcome.to_string()),
        (true, Some(price)) => (outcome.passes() && price.passes(), format!("{outcome}; {price}")),
    };
    println!("{RESULT}{} {said}", if passes { "ok    " } else { "FAILED" });
    Ok(ExitCode::SUCCESS)
}

/// Runs one case in a process of its own; its line, or why there is none.
fn spawn(
    options: &Options,
    environment: &[(String, String)],
    name: &str,
    limit: Limit,
) -> Result<Result<String, String>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--child", "--lane", &options.lane.to_string(), "--case", name]);
    command.arg("--tt").arg(&options.folder).args(options.choice.cost.then_some("--cost"));
    command.env_remove(SIMULATOR).envs(environment.iter().map(|(k, v)| (k, v)));
    // The host library writes files of its own into the current folder.
    let folder = environment_folder(environment, &options.folder);
    command.current_dir(folder);
    let tag = format!("muse-parity-{}-{}", std::process::id(), name.replace('/', "-"));
    let process::Ended { status, out, err } = process::run(&mut command, &tag, folder, limit)?;
    let line = out.lines().find_map(|line| line.strip_prefix(RESULT));
    Ok(match (line, status) {
        (Some(line), _) => Ok(line.to_owned()),
        (None, Some(status)) => Err(format!("{status}: {}", fault(&err))),
        (None, None) => Err(format!("no end within {limit}")),
    })
}

fn environment_folder<'a>(environment: &'a [(String, String)], otherwise: &'a Path) -> &'a Path {
    let logs = environment.iter().find(|(name, _)| name == "TT_METAL_LOGS_PATH");
    logs.map_or(otherwise, |(_, path)| Path::new(path))
}
