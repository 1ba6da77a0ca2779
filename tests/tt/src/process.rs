//! A process that is ended at a limit, with everything that it started: a simulator is a session of
//! its own, outlives the process that asked for it and holds its output open.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Names a run in the environment of its processes.
pub const TAG: &str = "TT_SIM_RUN_TAG";
const POLL: Duration = Duration::from_millis(20);
/// How often processes are looked for again, for they may start others meanwhile.
const ROUNDS: u32 = 100;

/// How a process ended.
#[derive(Debug)]
pub struct Ended {
    /// Nothing when it was stopped at the limit.
    pub status: Option<ExitStatus>,
    /// What it wrote to its standard output.
    pub out: String,
    /// What it wrote to its standard error.
    pub err: String,
}

/// Runs `command` for no longer than `limit`; nothing of it runs afterwards. The output goes
/// through files in `folder`, because a pipe has no end while a simulator holds it. `tag` is for
/// this run only.
///
/// # Errors
/// When it cannot be started or cannot be ended.
pub fn run(command: &mut Command, tag: &str, folder: &Path, limit: Duration) -> Result<Ended> {
    let paths = ["out", "err"].map(|end| folder.join(format!("{tag}.{end}")));
    let create = |path: &Path| File::create(path).with_context(|| path.display().to_string());
    command.stdin(Stdio::null()).stdout(create(&paths[0])?).stderr(create(&paths[1])?);
    let mut child = command.env(TAG, tag).spawn().with_context(|| format!("{command:?}"))?;
    let deadline = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(POLL);
    };
    end(tag)?;
    let [out, err] = paths.map(|path| -> Result<String> {
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        fs::remove_file(&path)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    });
    Ok(Ended { status, out: out?, err: err? })
}

/// Ends all processes under a tag.
fn end(tag: &str) -> Result<()> {
    for _ in 0..ROUNDS {
        let left = tagged(tag)?;
        if left.is_empty() {
            return Ok(());
        }
        // One that has ended by itself meanwhile is no error; one that stays is seen again.
        Command::new("kill").arg("-KILL").args(&left).stderr(Stdio::null()).status()?;
        std::thread::sleep(POLL);
    }
    bail!("processes {} do not end: see what they wait for", tagged(tag)?.join(", "))
}

/// The numbers of the processes that have a tag in their environment.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn tagged(tag: &str) -> Result<Vec<String>> {
    let wanted = format!("{TAG}={tag}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("/proc, where processes are listed")? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        match fs::read(entry.path().join("environ")) {
            Ok(all) if all.split(|byte| *byte == 0).any(|one| one == wanted.as_bytes()) => {
                found.push(name);
            }
            // Processes of others cannot be read, and those that just ended are not there.
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

/// What Linux says to a read about a process that ended after the file was opened.
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

    #[test]
    fn what_a_crashed_process_started_ends_with_it() {
        let (folder, tag) = (tempfile::tempdir().unwrap(), tag("crash"));
        let limit = Duration::from_secs(60);
        let ended = run(&mut shell("kill -KILL $$"), &tag, folder.path(), limit).unwrap();
        assert!(ended.status.is_some_and(|status| !status.success()), "{ended:?}");
        assert_eq!(ended.out, "began\n");
        assert_eq!(tagged(&tag).unwrap(), [""; 0]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_process_ends_at_its_limit() {
        let (folder, tag) = (tempfile::tempdir().unwrap(), tag("limit"));
        let limit = Duration::from_millis(200);
        let ended = run(&mut shell("sleep 1000"), &tag, folder.path(), limit).unwrap();
        assert!(ended.status.is_none(), "{ended:?}");
        assert_eq!(tagged(&tag).unwrap(), [""; 0]);
    }
}
