//! The files of `deploy/` name only what `muse serve` understands, and their times agree.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Seconds between the end of a drain and the kill: replies on their way, and the process's end.
const MARGIN: std::ops::RangeInclusive<u64> = 5..=15;

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A file without its comments and the lines that part the documents of YAML.
fn settings(name: &str) -> String {
    let text = file(name);
    let is_setting = |line: &&str| !line.trim_start().starts_with('#') && *line != "---";
    text.lines().filter(is_setting).collect::<Vec<_>>().join("\n")
}

/// Words of `text` that start with `mark` and go on with letters, digits and `joint`.
fn words<'a>(text: &'a str, mark: &str, joint: char) -> BTreeSet<&'a str> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == joint;
    let word = |(at, _): (usize, &str)| {
        let rest = &text[at..];
        let free = !text[..at].ends_with(part);
        let end = rest.find(|c| !part(c)).unwrap_or(rest.len());
        (free && end > mark.len()).then(|| &rest[..end])
    };
    text.match_indices(mark).filter_map(word).collect()
}

/// The first whole number behind `mark`.
fn number(text: &str, mark: &str) -> u64 {
    let (_, rest) = text.split_once(mark).unwrap_or_else(|| panic!("no {mark} in:\n{text}"));
    let digits = rest.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or_else(|_| panic!("no number behind {mark}"))
}

fn help() -> String {
    let muse = Command::new(env!("CARGO_BIN_EXE_muse")).args(["serve", "--help"]).output();
    let help = muse.expect("muse starts");
    assert!(help.status.success());
    String::from_utf8(help.stdout).expect("muse writes UTF-8")
}

#[test]
fn flags_and_variables_are_known() {
    let help = help();
    let (flags, variables) = (words(&help, "--", '-'), words(&help, "MUSE_", '_'));
    let mut seen = BTreeSet::new();
    for name in ["Dockerfile", "README.md", "compose.yaml", "kubernetes.yaml", "muse.service"] {
        let text = settings(name);
        // These two show flags of other programs too; some lines call the server.
        let mixed = matches!(name, "Dockerfile" | "README.md");
        let is_call = |line: &&str| line.contains("muse serve ") || line.contains("[\"serve\"");
        let calls = text.lines().filter(|line| !mixed || is_call(line));
        let calls = calls.collect::<Vec<_>>().join("\n");
        for (used, known) in
            [(words(&calls, "--", '-'), &flags), (words(&text, "MUSE_", '_'), &variables)]
        {
            for word in used {
                assert!(known.contains(word), "{name}: muse serve has no {word}");
                seen.insert(word.to_owned());
            }
        }
    }
    for used in ["--grpc", "--http", "--drain", "--kv-disk", "MUSE_MODEL"] {
        assert!(seen.contains(used), "{used} was not found: the test misses lines of the files");
    }
}

/// A drain that is longer than the supervisor's patience would be cut by SIGKILL.
#[test]
fn drains_end_before_the_kill() {
    for (name, patience, before) in [
        ("compose.yaml", "stop_grace_period:", 0),
        ("muse.service", "TimeoutStopSec=", 0),
        (
            "kubernetes.yaml",
            "terminationGracePeriodSeconds:",
            number(&settings("kubernetes.yaml"), "sleep"),
        ),
    ] {
        let text = settings(name);
        let (drain, patience) = (number(&text, "--drain"), number(&text, patience));
        let margin = patience.checked_sub(drain + before);
        assert!(
            margin.is_some_and(|margin| MARGIN.contains(&margin)),
            "{name}: drains for {drain} s of {patience} s, after {before} s of preStop"
        );
    }
}

#[test]
fn logs_are_json_everywhere() {
    for name in ["Dockerfile", "compose.yaml", "kubernetes.yaml", "muse.service"] {
        let text = settings(name);
        let (_, value) = text.split_once("--log-format").expect(name);
        assert!(value[1..].starts_with("json"), "{name}");
    }
}

/// Everything else of the file system is read-only.
#[test]
fn kv_blocks_go_to_a_folder_that_the_server_may_write() {
    for (name, folder, mount) in [
        ("muse.service", "%S/muse/", "StateDirectory=muse\n"),
        ("compose.yaml", "/var/lib/muse/", "state:/var/lib/muse\n"),
        ("kubernetes.yaml", "/var/lib/muse/", "mountPath: /var/lib/muse }"),
    ] {
        let text = settings(name);
        let (_, argument) = text.split_once("--kv-disk").expect("the flag");
        assert!(argument[1..].starts_with(folder), "{name}: {argument}");
        assert!(text.contains(mount), "{name}: mounts nothing at {folder}");
    }
    assert!(settings("Dockerfile").contains("install -d -o 65534 -g 65534 /var/lib/muse"));
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The probe that Docker runs, as the Dockerfile spells it, against the built server.
#[test]
fn the_health_check_tells_a_server_from_none() {
    let text = settings("Dockerfile");
    let (_, check) = text.split_once("HEALTHCHECK").expect("a HEALTHCHECK");
    let (_, command) = check.split_once("CMD ").expect("its CMD");
    let command = command.lines().next().expect("a line");
    let command: Vec<String> = serde_json::from_str(command).expect("its arguments as JSON");
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("an address").port();
    drop(free);
    let probe = || {
        let words: Vec<String> =
            command.iter().map(|word| word.replace("8080", &port.to_string())).collect();
        let quiet = Command::new(&words[0]).args(&words[1..]).stderr(Stdio::null()).status();
        quiet.expect("bash").success()
    };
    assert!(!probe(), "nothing listens yet");
    let mut serve = Command::new(env!("CARGO_BIN_EXE_muse"));
    serve.args(["serve", "--grpc", "127.0.0.1:0", "--http", &format!("127.0.0.1:{port}")]);
    let mut server = Server(serve.stderr(Stdio::null()).spawn().expect("muse starts"));
    while !probe() {
        let ended = server.0.try_wait().expect("a status");
        assert!(ended.is_none(), "the server ended: {ended:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
