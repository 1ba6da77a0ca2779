//! The built `muse` as a user runs it, against the reference outputs of the embedded muse-nano and
//! of the checkpoint without a tokenizer.

mod bench;
mod build_script;
mod chat;
mod generate;
mod kv_disk;
mod limits;
mod logging;
mod manual;
#[cfg(all(feature = "jemalloc", target_os = "linux"))]
mod memory;
mod quantize;
mod refusals;
mod serve;
mod settings;
mod template;
mod tools;
mod vision;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::Duration;

use muse_testkit::{Golden, assert_close, correlation, golden_dir, nano_dir};
use serde_json::{Value, json};

/// The day the reference chats were made.
const DATE: [&str; 2] = ["--date", "2026-08-14"];

struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

fn muse(args: &[&str]) -> Said {
    muse_with(args, "")
}

fn muse_with(args: &[&str], input: impl AsRef<[u8]>) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muse"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MUSE_") {
            command.env_remove(name);
        }
    }
    let pipes = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = pipes.stderr(Stdio::piped()).spawn().expect("muse starts");
    // A command that ends without reading its input closes the pipe: no fault here.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_ref());
    let Output { status, stdout, stderr } = child.wait_with_output().expect("muse ends");
    let text = |bytes| String::from_utf8(bytes).expect("muse writes UTF-8");
    Said { code: status.code(), out: text(stdout), err: text(stderr) }
}

impl Said {
    #[track_caller]
    fn ok(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{}", self.out);
        self.out
    }

    #[track_caller]
    fn json(self) -> Value {
        let out = self.ok();
        assert_eq!(out.lines().count(), 1, "one object, one line: {out}");
        serde_json::from_str(&out).expect("JSON")
    }

    /// The command failed with one line that has all these words in it.
    #[track_caller]
    fn refused(self, words: &[&str]) {
        assert_eq!((self.code, self.out.as_str()), (Some(1), ""), "{}", self.err);
        assert!(self.err.starts_with("error: ") && self.err.lines().count() == 1, "{}", self.err);
        for word in words {
            assert!(self.err.contains(word), "no {word:?} in: {}", self.err);
        }
    }
}

fn chats() -> Value {
    let text = std::fs::read(golden_dir().join("nano/chats.json")).expect("a golden");
    serde_json::from_slice(&text).expect("JSON")
}

fn list(ids: &Value) -> String {
    let ids: Vec<String> = ids.as_array().expect("a list").iter().map(Value::to_string).collect();
    ids.join(",")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn tiny() -> PathBuf {
    golden_dir().join("tiny/target")
}

/// CPU time that a process has used, in ticks of 10 ms.
fn cpu_ticks(process: &Child) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id())).expect("procfs");
    // utime and stime of proc(5), counted from behind the name.
    let fields = stat.rsplit_once(')').expect("a name in parentheses").1.split_whitespace();
    fields.skip(11).take(2).map(|field| field.parse::<u64>().expect("a number")).sum()
}

fn signal(name: &str, process: &Child) {
    let id = process.id().to_string();
    assert!(Command::new("kill").args([name, &id]).status().expect("kill").success());
}
