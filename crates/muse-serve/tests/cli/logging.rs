//! The log of `muse serve`: its filters and formats, and that a log nobody takes stops nothing.

use std::fs::OpenOptions;
use std::net::TcpListener;
use std::time::Instant;

use super::*;

/// A server whose log may go anywhere, killed when the test fails.
struct Quiet {
    process: Child,
    grpc: String,
}

impl Quiet {
    fn start(log: &[&str], stderr: Stdio) -> Self {
        // The log cannot say which ports were free.
        let free = || TcpListener::bind("127.0.0.1:0").expect("a port").local_addr();
        let [grpc, http] = [free(), free()].map(|address| address.expect("an address").to_string());
        let mut command = Command::new(env!("CARGO_BIN_EXE_muse"));
        let args = ["serve", "--grpc", &grpc, "--http", &http];
        let process = command.args(args).args(log).stderr(stderr).spawn().expect("muse starts");
        Self { process, grpc }
    }

    /// Asks until the server listens.
    fn check_answers(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(300);
        loop {
            let args = ["chat", "--server", &self.grpc, "--json", "What is 7 + 8?"];
            let answer = muse(&[&args[..], &DATE].concat());
            if answer.code == Some(0) {
                assert_eq!(answer.json()["content"], "7 + 8 = 15.");
                return;
            }
            assert_eq!(self.process.try_wait().expect("a child"), None, "the server ended");
            assert!(Instant::now() < deadline, "{}", answer.err);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn check_stops(mut self) {
        signal("-TERM", &self.process);
        assert_eq!(self.process.wait().expect("an end").code(), Some(0));
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _ = self.process.kill();
    }
}

#[test]
fn a_reader_of_the_log_who_left_stops_nothing() {
    for level in ["info", "trace"] {
        let mut server = Quiet::start(&["--log", level], Stdio::piped());
        drop(server.process.stderr.take());
        server.check_answers();
        server.check_stops();
    }
}

#[test]
fn a_reader_of_the_log_who_does_not_read_stops_nothing() {
    let mut server = Quiet::start(&["--log", "trace"], Stdio::piped());
    // A request at this level logs more than a pipe holds.
    for _ in 0..3 {
        server.check_answers();
    }
    server.check_stops();
}

#[test]
fn a_full_disk_under_the_log_stops_nothing() {
    let full = OpenOptions::new().write(true).open("/dev/full").expect("a device that is full");
    let mut server = Quiet::start(&["--log", "trace"], full.into());
    server.check_answers();
    server.check_stops();
}

#[test]
fn a_log_in_json_is_one_object_a_line() {
    let mut server = serve::Server::start_with(&["--log-format", "json"], &[]);
    let chat = ["chat", "--server", &server.grpc, "--json", "What is 7 + 8?"];
    muse(&[&chat, &DATE[..]].concat()).json();
    std::net::TcpStream::connect(&server.http).expect("the address that was logged");
    let (code, rest) = server.stop();
    assert_eq!(code, Some(0));
    assert!(rest.iter().any(|line| line.contains("stopped")), "{rest:?}");
    for line in server.first_lines.iter().chain(&rest) {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        for key in ["timestamp", "level", "target", "message"] {
            assert!(line[key].is_string(), "no {key} in {line}");
        }
    }
}

#[test]
fn filters_that_log_nothing_are_refused() {
    let none = ["serve", "--model", "/nowhere", "--log"];
    let refused = |filter, words: &[&str]| muse(&[&none[..], &[filter]].concat()).refused(words);
    refused("json", &["--log json", "--log-format json"]);
    refused("inof", &["--log inof", "nothing of muse", "info,muse=debug"]);
    refused("off", &["--log off", "use error"]);
    refused("muse=loud", &["--log muse=loud", "not a filter"]);
}

#[test]
fn the_filter_that_the_help_names_logs_more() {
    let help = muse(&["serve", "--help"]).ok();
    let (_, rest) = help.split_once("What to log, such as ").expect("an example");
    let example = rest.split(['[', '\n']).next().and_then(|text| text.trim().rsplit(' ').next());
    let mut server = serve::Server::start_with(&["--log", example.expect("a filter")], &[]);
    server.stop();
    assert!(server.first_lines.iter().any(|line| line.contains("INFO")), "the usual lines");
}
