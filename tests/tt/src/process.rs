//! Runs a process, stops it when it hangs, and ends everything that it started: a simulator is a
//! session of its own, outlives the process that started it and holds its output open.

use std::fmt;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Names a run in the environment of its processes.
pub const TAG: &str = "TT_SIM_RUN_TAG";
const POLL: Duration = Duration::from_millis(20);
/// How often killed processes are looked for again, with [`POLL`] between: at least five minutes.
const MAX_KILL_ROUNDS: u32 = 15_000;

/// When a run counts as hung. Neither bound depends on how busy the machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// CPU time of all processes of the run together: stops one that loops.
    pub cpu: Duration,
    /// How long all of them may use less than a hundredth of a core: stops one that waits for what
    /// never comes.
    pub idle: Duration,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cpu, idle) = (self.cpu.as_secs(), self.idle.as_secs());
        write!(f, "{cpu} s of CPU time, or {idle} s in which nothing computed")
    }
}

/// How a process ended.
#[derive(Debug)]
pub struct Ended {
    /// `None` when it was stopped as hung.
    pub status: Option<ExitStatus>,
    /// What it wrote to its standard output.
    pub out: String,
    /// What it wrote to its standard error.
    pub err: String,
}

/// Runs `command` to its end or until it hangs; no process of the run is left afterwards. The
/// output goes through files in `folder`, because a pipe has no end while a simulator holds it.
/// `tag` must be unique to this run.
///
/// # Errors
/// When it cannot be started or its processes cannot be ended.
pub fn run(command: &mut Command, tag: &str, folder: &Path, limit: Limit) -> Result<Ended> {
    let paths = ["out", "err"].map(|end| folder.join(format!("{tag}.{end}")));
    let create = |path: &Path| File::create(path).with_context(|| path.display().to_string());
    command.stdin(Stdio::null()).stdout(create(&paths[0])?).stderr(create(&paths[1])?);
    let mut child = command.env(TAG, tag).spawn().with_context(|| format!("{command:?}"))?;
    let (mut progress, mut looked) = (Progress::new(limit), Instant::now());
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if looked.elapsed() >= limit.idle / Progress::LOOKS {
            looked = Instant::now();
            if progress.is_hung(cpu_ticks(&tagged(tag)?)) {
                child.kill()?;
                child.wait()?;
                break None;
            }
        }
        thread::sleep(POLL);
    };
    end(tag)?;
    let [out, err] = paths.map(|path| -> Result<String> {
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        fs::remove_file(&path)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    });
    Ok(Ended { status, out: out?, err: err? })
}

/// The CPU time of a run, as far as it was looked at.
struct Progress {
    /// The limits in clock ticks: CPU time of the whole run, and the least that counts as progress.
    max_ticks: u64,
    min_ticks: u64,
    /// Ticks of the processes that existed at the last look.
    last: u64,
    /// Ticks of the whole run, and how many it had at the last progress.
    used: u64,
    worked: u64,
    /// Looks since the last progress. They are counted, not timed, so that a suspended machine adds
    /// one.
    looks: u32,
}

impl Progress {
    /// Looks until an idle run counts as hung.
    const LOOKS: u32 = 20;
    /// `USER_HZ` of Linux.
    const TICKS_PER_SECOND: u64 = 100;

    fn new(limit: Limit) -> Self {
        let ticks = |time: Duration| time.as_millis() as u64 * Self::TICKS_PER_SECOND / 1000;
        let (max_ticks, min_ticks) = (ticks(limit.cpu), ticks(limit.idle / 100).max(1));
        Self { max_ticks, min_ticks, last: 0, used: 0, worked: 0, looks: 0 }
    }

    /// Takes the ticks of the processes that exist now.
    fn is_hung(&mut self, ticks: u64) -> bool {
        // The sum shrinks when a process ends that no process of the run waits for.
        self.used += ticks.saturating_sub(self.last);
        self.last = ticks;
        if self.used >= self.worked + self.min_ticks {
            (self.worked, self.looks) = (self.used, 0);
        } else {
            self.looks += 1;
        }
        self.used > self.max_ticks || self.looks >= Self::LOOKS
    }
}

/// CPU time of processes and of the children that they waited for, in clock ticks.
fn cpu_ticks(processes: &[String]) -> u64 {
    let ticks = |id: &String| -> Option<u64> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // utime, stime, cutime and cstime of proc(5), counted from behind the name.
        let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(4);
        fields.map(|field| field.parse::<u64>().ok()).sum()
    };
    // A process that ended meanwhile has no status.
    processes.iter().filter_map(ticks).sum()
}

/// Ends all processes under a tag.
fn end(tag: &str) -> Result<()> {
    for _ in 0..MAX_KILL_ROUNDS {
        let left = tagged(tag)?;
        if left.is_empty() {
            return Ok(());
        }
        // One that has ended by itself meanwhile is no error; one that stays is seen again.
        Command::new("kill").arg("-KILL").args(&left).stderr(Stdio::null()).status()?;
        thread::sleep(POLL);
    }
    bail!("processes {} do not end after SIGKILL: see what they wait for", tagged(tag)?.join(", "))
}

/// The ids of the processes that have a tag in their environment.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn tagged(tag: &str) -> Result<Vec<String>> {
    let entry_of_run = format!("{TAG}={tag}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("/proc, where processes are listed")? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        match fs::read(entry.path().join("environ")) {
            Ok(all)
                if all
                    .split(|byte| *byte == 0)
                    .any(|variable| variable == entry_of_run.as_bytes()) =>
            {
                found.push(name);
            }
            // Processes of other users cannot be read, and those that just ended have no file.
            Ok(_) => {}
            Err(error) => ensure!(
                error.kind() == ErrorKind::PermissionDenied
                    || error.kind() == ErrorKind::NotFound
                    || error.raw_os_error() == Some(NO_SUCH_PROCESS),
                "{}: {error}",
                entry.path().display()
            ),
        }
    }
    Ok(found)
}

/// The error of a read about a process that ended after the file was opened: ESRCH.
const NO_SUCH_PROCESS: i32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that starts another one in a session of its own, as a simulator is.
    fn shell(then: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("setsid sleep 1000 & echo began; {then}")]);
        command
    }

    fn tag(name: &str) -> String {
        format!("muse-test-{name}-{}", std::process::id())
    }

    /// A limit that no passing test reaches.
    const ENOUGH: Limit = Limit { cpu: Duration::from_secs(60), idle: Duration::from_secs(300) };

    #[test]
    fn descendants_of_a_crashed_process_are_ended() {
        let (folder, tag) = (tempfile::tempdir().unwrap(), tag("crash"));
        let ended = run(&mut shell("kill -KILL $$"), &tag, folder.path(), ENOUGH).unwrap();
        assert!(ended.status.is_some_and(|status| !status.success()), "{ended:?}");
        assert_eq!(ended.out, "began\n");
        assert_eq!(tagged(&tag).unwrap(), [""; 0]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_process_that_waits_and_one_that_loops_are_stopped() {
        let idle = Limit { idle: Duration::from_millis(200), ..ENOUGH };
        let cpu = Limit { cpu: Duration::from_millis(50), idle: Duration::from_secs(4) };
        for (name, then, limit) in
            [("waits", "sleep 1000", idle), ("loops", "while :; do :; done", cpu)]
        {
            let (folder, tag) = (tempfile::tempdir().unwrap(), tag(name));
            let ended = run(&mut shell(then), &tag, folder.path(), limit).unwrap();
            assert!(ended.status.is_none(), "{name}: {ended:?}");
            assert_eq!(tagged(&tag).unwrap(), [""; 0]);
        }
    }

    #[test]
    fn a_slow_run_is_not_hung() {
        let limit = Limit { cpu: Duration::from_secs(5), idle: Duration::from_secs(100) };
        let hung = |ticks_of: fn(u64) -> u64| {
            let mut progress = Progress::new(limit);
            (0..1000).position(|look| progress.is_hung(ticks_of(look)))
        };
        // A second of CPU time in a hundred, in steps of any size, until the five are used up.
        assert_eq!(hung(|look| 6 * look), Some(84));
        assert_eq!(hung(|look| look / 15 * 100), Some(90));
        assert_eq!(hung(|look| 4 * look), Some(19));
        // What an ended process used stays used.
        assert_eq!(hung(|look| look % 3 * 150), Some(5));
    }
}
