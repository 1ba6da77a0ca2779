//! Files that are no regular files, links that lead nowhere, and files that change while in use.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use muse_core::contract::WeightSource;
use muse_testkit::nano_dir;
use muse_weights::{Checkpoint, Imatrix, inspect};

use crate::support::*;

/// The signal for memory that has no bytes behind it.
const SIGBUS: i32 = if cfg!(target_os = "linux") { 7 } else { 10 };

/// Writes files to a folder of their own.
fn written(files: Vec<(String, Vec<u8>)>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).expect("written");
    }
    folder
}

/// A HuggingFace folder, whole or in shards, with every file that is read when it is there.
fn huggingface(sharded: bool, chat_template: bool) -> tempfile::TempDir {
    let target = small_target();
    let mut files = if sharded { target.sharded() } else { target.files() };
    let mut others = vec![
        ("generation_config.json", "{}"),
        ("preprocessor_config.json", "{}"),
        ("tokenizer.json", "{}"),
        ("tokenizer_config.json", "{}"),
    ];
    if chat_template {
        others.push(("chat_template.jinja", ""));
    }
    files.extend(others.into_iter().map(|(name, text)| (name.to_owned(), text.into())));
    written(files)
}

/// Calls `check` with the path to open and the file of it to replace, for every file of every kind
/// of checkpoint.
fn for_every_file(check: impl Fn(&Path, &Path)) {
    for (sharded, chat_template) in [(false, true), (false, false), (true, false)] {
        let names = fs::read_dir(huggingface(sharded, chat_template).path()).expect("a folder");
        for name in names.map(|entry| entry.expect("an entry").file_name()) {
            // Files are made anew each time: a test may spoil them. Beside a template of its own,
            // tokenizer_config.json is not read.
            if !(chat_template && name == "tokenizer_config.json") {
                let folder = huggingface(sharded, chat_template);
                check(folder.path(), &folder.path().join(name));
            }
        }
    }
    let part = |number| format!("small-0000{number}-of-00002.gguf");
    for number in [1, 2] {
        let mut file = small_text();
        file.set("split.count", Key::U32(2));
        file.set("split.no", Key::U32(0));
        let folder = written(vec![(part(1), file.bytes()), (part(2), Vec::new())]);
        check(&folder.path().join(part(1)), &folder.path().join(part(number)));
    }
}

/// Runs `open` on another thread; a call that does not return is a failure.
fn refusal(open: impl FnOnce() -> Result<(), muse_weights::Error> + Send + 'static) -> String {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(open().map_err(|error| error.to_string())));
    let result = receiver.recv_timeout(Duration::from_secs(120));
    result.expect("opening a file does not wait").expect_err("refused")
}

#[track_caller]
fn check_refused(path: &Path, file: &Path, words: &[&str]) {
    let (opened, inspected) = (path.to_owned(), path.to_owned());
    let name = file.file_name().expect("a name").to_str().expect("UTF-8");
    for message in [
        refusal(move || Checkpoint::open(&opened).map(drop)),
        refusal(move || inspect(&inspected).map(drop)),
    ] {
        for word in [name].iter().chain(words) {
            assert!(message.contains(word), "no `{word}` in: {message}");
        }
    }
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo runs").success());
}

#[test]
fn only_regular_files_are_opened_and_nothing_waits() {
    for_every_file(|path, file| {
        fs::remove_file(file).expect("removed");
        make_fifo(file);
        check_refused(path, file, &["a FIFO", "expected a regular file"]);
        fs::remove_file(file).expect("removed");
        symlink("/dev/zero", file).expect("linked");
        check_refused(path, file, &["a device", "expected a regular file"]);
        fs::remove_file(file).expect("removed");
        let _socket = UnixListener::bind(file).expect("bound");
        check_refused(path, file, &["a socket", "expected a regular file"]);
        fs::remove_file(file).expect("removed");
        fs::create_dir(file).expect("made");
        // The path of a GGUF model that is a folder is opened as a folder.
        if path != file {
            check_refused(path, file, &["a folder", "expected a regular file"]);
        }
    });
    let folder = tempfile::tempdir().expect("a folder");
    let fifo = folder.path().join("imatrix.gguf");
    make_fifo(&fifo);
    let message = refusal(move || Imatrix::open(&fifo).map(drop));
    assert!(message.contains("imatrix.gguf") && message.contains("a FIFO"), "{message}");
}

#[test]
fn links_that_lead_nowhere_are_not_absent_files() {
    for_every_file(|path, file| {
        fs::remove_file(file).expect("removed");
        symlink("../blobs/0123", file).expect("linked");
        check_refused(path, file, &["a symbolic link to `../blobs/0123`", "no file"]);
    });
    let folder = tempfile::tempdir().expect("a folder");
    let link = folder.path().join("model");
    symlink("nowhere", &link).expect("linked");
    check_refused(&link, &link, &["a symbolic link to `nowhere`"]);
}

/// A copy of nano, whose weights are many pages.
fn nano_copy() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["config.json", "model.safetensors"] {
        let from = nano_dir().join("target").join(name);
        fs::copy(from, folder.path().join(name)).expect("copied");
    }
    let weights = folder.path().join("model.safetensors");
    (folder, weights)
}

fn shorten(path: &Path, length: u64) {
    fs::File::options().write(true).open(path).expect("opened").set_len(length).expect("cut");
}

#[test]
fn a_file_that_changed_gives_errors_and_never_numbers() {
    let length = |path: &Path| fs::metadata(path).expect("a file").len();
    type Change = fn(&Path, u64);
    let cases: [(&str, Change); 4] = [
        // The rest of the last page reads as zeros, and no signal comes.
        ("a byte shorter", |path, length| shorten(path, length - 1)),
        ("empty", |path, _| shorten(path, 0)),
        ("longer", |path, length| shorten(path, length + 1)),
        ("written to", |path, _| {
            let file = fs::File::options().write(true).open(path).expect("opened");
            file.set_modified(SystemTime::UNIX_EPOCH).expect("touched");
        }),
    ];
    for (what, change) in cases {
        let (folder, weights) = nano_copy();
        let checkpoint = Checkpoint::open(folder.path()).expect("nano");
        checkpoint.check_unchanged().expect("as it was");
        change(&weights, length(&weights));
        let read = checkpoint.weight("output_norm.weight").map(drop);
        let error = read.expect_err(what).to_string();
        assert!(error.contains("model.safetensors: while it was in use"), "{what}: {error}");
        assert!(checkpoint.check_unchanged().is_err(), "{what}");
        // The norms that no file holds are still known.
        checkpoint.weight("blk.0.attn_q_norm.weight").expect("a constant");
    }
    // Another file under the same name is not the one that was opened.
    let (folder, weights) = nano_copy();
    let checkpoint = Checkpoint::open(folder.path()).expect("nano");
    fs::remove_file(&weights).expect("removed");
    fs::write(&weights, "another").expect("written");
    checkpoint.check_unchanged().expect("still the file that was opened");
    checkpoint.weight("output_norm.weight").expect("a tensor");
}

/// Runs this test of this binary again, as a process of its own, with a variable set.
fn this_test_with(variable: &str, value: &str) -> std::process::Output {
    let name = std::thread::current().name().expect("named after the test").to_owned();
    Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", &name, "--nocapture"])
        .env(variable, value)
        .output()
        .expect("it starts")
}

#[test]
fn a_file_shortened_while_it_is_read_ends_the_process_with_its_name() {
    const CASE: &str = "MUSE_TEST_SHORTENED";
    if let Ok(case) = std::env::var(CASE) {
        let (folder, weights) = nano_copy();
        let checkpoint = Checkpoint::open(folder.path()).expect("nano");
        if case == "signal" {
            // The standard library's handler lets the first one pass that is no stack overflow.
            let pid = std::process::id().to_string();
            for _ in 0..100 {
                Command::new("kill").args(["-BUS", &pid]).status().expect("kill runs");
            }
            return;
        }
        // Another checkpoint that was opened and closed is not blamed.
        drop(Checkpoint::open(&nano_dir().join("assistant")).expect("nano's drafter"));
        let view = checkpoint.weight("output.weight").expect("a tensor");
        shorten(&weights, 4096);
        let read = || view.bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
        let sum = std::thread::scope(|scope| {
            let others = [(); 3].map(|()| scope.spawn(read));
            others.into_iter().map(|thread| thread.join().expect("read")).sum::<u64>()
        });
        println!("read bytes that are gone: {sum}");
        return;
    }
    let out = this_test_with(CASE, "read");
    let message = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{message}");
    let line = message.lines().find(|line| line.starts_with("error: ")).expect("a message");
    assert!(line.contains("/model.safetensors: cannot be read any more at byte "), "{line}");
    assert!(line.contains("shortened"), "{line}");
    assert!(!String::from_utf8_lossy(&out.stdout).contains("read bytes that are gone"));
    // A signal from elsewhere does what it did before.
    let out = this_test_with(CASE, "signal");
    let message = String::from_utf8_lossy(&out.stderr);
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&out.status),
        Some(SIGBUS),
        "{message}"
    );
    assert!(!message.contains("cannot be read any more"), "{message}");
}
