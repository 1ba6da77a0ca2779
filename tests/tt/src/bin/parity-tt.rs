//! `parity-tt --lane mock|wolfpine|sim|card --tt DIR [--case NAME] [--quick] [--brief] [--cost]`:
//! compares every kernel with the CPU, each case in a process of its own, because an error of a
//! simulator ends its process. `--brief` takes the largest case of each operation. Exits with
//! `SKIPPED` when the lane cannot run on this machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use muse_parity::SKIPPED;
use muse_parity::case_filter::{CaseFilter, Selection};
use muse_parity::cases::{self, Case};
use muse_parity::lane::{Lane, SIMULATOR};
use muse_parity::process::{self, Limit};
use muse_parity::report::{OrderedLines, failure_reason};
use muse_parity::setup::Environment;
use muse_tt::{Device, DeviceOptions};

const USAGE: &str = "use --lane mock|wolfpine|sim|card [--tt DIR, else MUSE_TT_DIR] [--case NAME] [--quick] \
     [--brief] [--cost]";
/// Begins the result line of a child process.
const RESULT: &str = "parity: ";

struct Options {
    lane: Lane,
    folder: PathBuf,
    filter: CaseFilter,
    child: bool,
}

fn options() -> Result<Options> {
    let (mut lane, mut folder, mut child) = (None, None, false);
    let mut filter = CaseFilter::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let mut value =
            || arguments.next().with_context(|| format!("{flag} requirement a value; {USAGE}"));
        match flag.as_str() {
            "--lane" => lane = Some(Lane::named(&value()?)?),
            "--tt" => folder = Some(PathBuf::from(value()?)),
            "--case" => filter.case = Some(value()?),
            "--quick" => filter.quick = true,
            "--brief" => filter.brief = true,
            "--cost" => filter.cost = true,
            "--child" => child = true,
            _ => bail!("unknown flag {flag}; {USAGE}"),
        }
    }
    let folder = folder.or_else(|| std::env::var_os("MUSE_TT_DIR").map(PathBuf::from));
    Ok(Options { lane: lane.context(USAGE)?, folder: folder.context(USAGE)?, filter, child })
}

fn main() -> Result<ExitCode> {
    let options = options()?;
    if options.child {
        return child(&options);
    }
    let Selection { cases, without_cost } = options.filter.select(cases::all())?;
    for name in without_cost {
        println!(
            "parity: SKIPPED {name}: it runs programs of other cases, which measure their cost"
        );
    }
    let packages = Environment::read(&options.folder)?;
    let simulator = std::env::var(SIMULATOR).ok();
    let environment = match options.lane.environment(&packages, simulator.as_deref()) {
        Ok(environment) => environment,
        Err(reason) => {
            eprintln!("parity: SKIPPED lane {}: {reason}", options.lane);
            return Ok(SKIPPED.into());
        }
    };
    let (runnable, skipped): (Vec<Case>, Vec<Case>) =
        cases.into_iter().partition(|case| options.lane.lacks(case.requirement).is_none());
    let limits = runnable.iter().map(|case| (case.name.as_str(), case.requirement.limit()));
    let failed = run_all(&options, &environment, &limits.collect::<Vec<_>>())?;
    let mut reasons = BTreeMap::new();
    for reason in skipped.iter().filter_map(|case| options.lane.lacks(case.requirement)) {
        *reasons.entry(reason).or_insert(0) += 1;
    }
    for (reason, count) in reasons {
        println!("parity: SKIPPED {count} cases: lane {} {reason}", options.lane);
    }
    println!("{} passed, {failed} failed", runnable.len() - failed);
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs cases, as many at a time as there are processors, and returns how many failed.
fn run_all(
    options: &Options,
    environment: &[(String, String)],
    cases: &[(&str, Limit)],
) -> Result<usize> {
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let lines = Mutex::new(OrderedLines::default());
    let worker = || -> Result<()> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((name, limit)) = cases.get(at) else { return Ok(()) };
            let began = Instant::now();
            let (passes, result) = match spawn(options, environment, name, *limit)? {
                Ok(line) => (line.starts_with("ok"), line),
                Err(line) => (false, format!("FAILED {line}")),
            };
            failed.fetch_add(usize::from(!passes), Ordering::Relaxed);
            let line = format!("{name:<34} {result}  {:.1} s", began.elapsed().as_secs_f64());
            let mut lines = lines.lock().expect("no thread panics with the lock");
            lines.add(at, line).iter().for_each(|line| println!("{line}"));
        }
    };
    let threads = thread::available_parallelism()?.get();
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        running.into_iter().try_for_each(|thread| thread.join().expect("a case's thread ends"))
    })?;
    Ok(failed.into_inner())
}

/// Runs one case in this process.
fn child(options: &Options) -> Result<ExitCode> {
    let name = options.filter.case.as_deref().context("a child process runs one case")?;
    let case = cases::all().into_iter().find(|case| case.name == name).context("no such case")?;
    let trace_bytes = options.lane.trace_bytes();
    // The parent process has a limit, and the case itself tests the device.
    let options_of =
        DeviceOptions { trace_bytes, timeout: None, smoke_test: false, ..Default::default() };
    let device = Device::open(muse_tt::open_shim()?, options_of)?;
    let (outcome, cost) = case.run(&device, options.filter.cost)?;
    let (passes, result) = match (options.lane.computes(), cost) {
        (false, _) => (true, "compiles".to_owned()),
        (true, None) => (outcome.passes(), outcome.to_string()),
        (true, Some(cost)) => (outcome.passes() && cost.passes(), format!("{outcome}; {cost}")),
    };
    println!("{RESULT}{} {result}", if passes { "ok    " } else { "FAILED" });
    Ok(ExitCode::SUCCESS)
}

/// Runs one case in a process of its own. Returns its result line, or why there is none.
fn spawn(
    options: &Options,
    environment: &[(String, String)],
    name: &str,
    limit: Limit,
) -> Result<Result<String, String>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--child", "--lane", &options.lane.to_string(), "--case", name]);
    command.arg("--tt").arg(&options.folder).args(options.filter.cost.then_some("--cost"));
    command.env_remove(SIMULATOR).envs(environment.iter().map(|(k, v)| (k, v)));
    // The host library writes files into the current folder.
    let folder = log_folder(environment, &options.folder);
    command.current_dir(folder);
    let tag = format!("muse-parity-{}-{}", std::process::id(), name.replace('/', "-"));
    let process::Ended { status, out, err } = process::run(&mut command, &tag, folder, limit)?;
    let line = out.lines().find_map(|line| line.strip_prefix(RESULT));
    Ok(match (line, status) {
        (Some(line), _) => Ok(line.to_owned()),
        (None, Some(status)) => Err(format!("{status}: {}", failure_reason(&err))),
        (None, None) => Err(format!("no end within {limit}")),
    })
}

/// The folder for logs, which exists.
fn log_folder<'a>(environment: &'a [(String, String)], otherwise: &'a Path) -> &'a Path {
    let logs = environment.iter().find(|(name, _)| name == "TT_METAL_LOGS_PATH");
    logs.map_or(otherwise, |(_, path)| Path::new(path))
}
