//! Limits of the system on open files and threads: told with what to do, and never by a panic.

use super::*;

/// Runs `muse` behind a command of bash that sets a limit, started by `starter` if any.
fn limited(starter: &[&str], limit: &str, args: &[&str]) -> Said {
    let script = format!(r#"{limit} && exec "$0" "$@""#);
    let line = [starter, &["bash", "-c", &script, env!("CARGO_BIN_EXE_muse")], args].concat();
    let output = Command::new(line[0]).args(&line[1..]).stdin(Stdio::null()).output();
    let output = output.expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("muse writes UTF-8");
    let err = text(output.stderr);
    // The allocator says, in lines of its own, that it gets no thread either.
    let err: String =
        err.split_inclusive('\n').filter(|line| !line.starts_with("<jemalloc>")).collect();
    let said = Said { code: output.status.code(), out: text(output.stdout), err };
    assert!(!said.err.contains("panicked"), "{limit}, {args:?}: {}", said.err);
    said
}

#[test]
fn too_few_open_files_are_told_with_the_limit() {
    let chat = ["chat", "--max-tokens", "1", "Hello"];
    let serve = ["serve", "--model", "/nowhere", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    for files in [4, 5, 6, 7, 8, 9, 10, 11, 12, 20] {
        let limit = format!("ulimit -n {files}");
        for args in [&chat[..], &serve, &["generate", "--ids", "5", "--max-tokens", "1"]] {
            let said = limited(&[], &limit, args);
            let enough = said.code == Some(0) || said.err.contains("/nowhere");
            if files <= 6 || !enough {
                said.refused(&["open files", "ulimit -n"]);
            } else {
                assert!(enough || files < 20, "{limit}, {args:?}: {}", said.err);
            }
        }
    }
}

/// The limit on threads does not hold for the superuser: what starts a process as another user that
/// can still read the files of this one.
const UNPRIVILEGED: [&str; 6] = [
    "setpriv",
    "--reuid",
    "54321",
    "--clear-groups",
    "--inh-caps=-all,+dac_override",
    "--ambient-caps=-all,+dac_override",
];

#[test]
fn too_few_threads_are_told_with_the_limit() {
    let id = Command::new("id").arg("-u").output().expect("id runs").stdout;
    let starter = if id == b"0\n" { &UNPRIVILEGED[..] } else { &[] };
    let threads = ["--threads", "2"];
    let chat = [&["chat", "--max-tokens", "1", "Hello"], &threads[..]].concat();
    let serve = ["serve", "--model", "/nowhere", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let generate = [&["generate", "--ids", "5", "--max-tokens", "1"], &threads[..]].concat();
    for limit in 1..=6 {
        for args in [&chat[..], &serve, &generate] {
            let said = limited(starter, &format!("ulimit -u {limit}"), args);
            let enough = said.code == Some(0) || said.err.contains("/nowhere");
            if limit == 1 || !enough {
                said.refused(&["ulimit -u"]);
            }
        }
    }
}
