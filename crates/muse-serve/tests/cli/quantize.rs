//! `muse quantize`: files that run, what it tells of them, and what it refuses.

use super::*;

/// A file of nano in a type.
fn nano_as(kind: &str, more: &[&str]) -> (tempfile::TempDir, PathBuf, Said) {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("nano.gguf");
    let nano = nano_dir().join("target");
    let mut args = vec!["quantize", path(&nano), path(&out), "--type", kind];
    args.extend(more);
    let said = muse(&args);
    assert_eq!(said.code, Some(0), "{}", said.err);
    (folder, out, said)
}

#[test]
fn a_file_that_was_written_runs() {
    let (_folder, out, said) = nano_as("q8_0", &[]);
    let inspected = muse(&["inspect", path(&out)]).ok();
    assert!(inspected.contains("q8_0") || inspected.contains("Q8_0"), "{inspected}");
    assert!(said.err.contains("--vision"), "{}", said.err);
    let lines: Vec<&str> = said.out.lines().collect();
    // Three tensors of the model, fourteen a layer, the sum.
    assert_eq!(lines.len(), 3 + 14 * 8 + 1, "{}", said.out);
    let line = lines.iter().find(|line| line.starts_with("blk.0.attn_q.weight")).expect("a line");
    for word in ["256 x 256", "BF16 -> Q8_0", "error 0.", " %"] {
        assert!(line.contains(word), "{line}");
    }
    assert!(lines.last().expect("the sum").contains("8.5"), "bits per weight: {}", said.out);
    let ask = |more: &[&str]| {
        let mut args = vec!["chat", "What is 4 + 5?", "--json", "--temperature", "0"];
        args.extend(DATE);
        args.extend(more);
        muse(&args).json()["content"].clone()
    };
    assert_eq!(ask(&["--model", path(&out)]), ask(&[]));
}

#[test]
fn the_head_is_kept_finer() {
    let head = |said: &Said| {
        let line = said.out.lines().find(|line| line.starts_with("output.weight"));
        line.expect("a line").to_owned()
    };
    let (_folder, _, said) = nano_as("q4_k", &[]);
    assert!(head(&said).contains("BF16 -> Q6_K"), "{}", said.out);
    let (_folder, _, said) = nano_as("Q4_K", &["--keep-head", "bf16", "--threads", "1"]);
    assert!(head(&said).contains("exact"), "{}", said.out);
}

#[test]
fn drafters_and_towers_have_files_of_their_own() {
    let (_folder, out, _) = nano_as("bf16", &["--vision"]);
    assert!(muse(&["inspect", path(&out)]).ok().contains("clip"));
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("draft.gguf");
    let (draft, target) = (nano_dir().join("assistant"), nano_dir().join("target"));
    muse(&["quantize", path(&draft), path(&out), "--type", "q8_0", "--vocabulary", path(&target)])
        .ok();
    let args = ["chat", "--draft", path(&out), "What is 4 + 5?", "--json", "--temperature", "0"];
    assert!(muse(&args).json()["usage"]["drafted_tokens"].as_u64() > Some(0));
}

#[test]
fn what_cannot_be_written_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (nano, out) = (nano_dir().join("target"), folder.path().join("out.gguf"));
    let write = |input: &Path, more: &[&str]| {
        let mut args = vec!["quantize", path(input), path(&out), "--type", "q8_0"];
        args.extend(more);
        muse(&args)
    };
    write(&folder.path().join("nothing"), &[]).refused(&["nothing"]);
    write(&nano, &["--imatrix", "/nowhere/imatrix"]).refused(&["/nowhere/imatrix"]);
    write(&nano_dir().join("assistant"), &["--vision"]).refused(&["no vision tower"]);
    let nowhere = folder.path().join("nowhere/out.gguf");
    muse(&["quantize", path(&nano), path(&nowhere), "--type", "q8_0"])
        .refused(&["nowhere/out.gguf", "/nowhere` does not exist"]);
    let said = muse(&["quantize", path(&nano), path(&out), "--type", "Q4_K_M"]);
    assert!(said.err.contains("q4_k is what comes nearest"), "{}", said.err);
    for kind in ["iq2_xxs", "q9"] {
        let said = muse(&["quantize", path(&nano), path(&out), "--type", kind]);
        assert_eq!(said.code, Some(2), "{}", said.err);
        assert!(said.err.contains("q4_k"), "{}", said.err);
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
    std::fs::write(&out, "mine").expect("a file");
    write(&nano, &[]).refused(&["out.gguf", "never overwritten"]);
}

/// Runs `muse quantize` with its standard output blocked, so that it stands still in the middle of
/// the file; calls `during` then.
fn while_writing(mut command: Command, out: &Path, during: impl FnOnce(&mut Child)) -> Option<i32> {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let full = writer.try_clone().expect("the same pipe");
    command.args(["quantize", path(&nano_dir().join("target")), path(out), "--type", "q4_k"]);
    // More than a pipe holds: this thread blocks until the reader is gone.
    let filling = std::thread::spawn(move || writer.write_all(&[b'.'; 1 << 20]));
    let mut child = command.stdout(full).stderr(Stdio::null()).spawn().expect("muse starts");
    drop(command);
    let part = out.with_file_name("out.gguf.muse-part");
    while std::fs::metadata(&part).map_or(0, |part| part.len()) == 0 {
        assert_eq!(child.try_wait().expect("its state"), None, "it waits for the pipe");
        std::thread::sleep(Duration::from_millis(10));
    }
    during(&mut child);
    let code = child.wait().expect("it ends").code();
    drop(reader);
    filling.join().expect("joined").expect_err("nobody reads");
    code
}

fn binary() -> Command {
    Command::new(env!("CARGO_BIN_EXE_muse"))
}

#[test]
fn signals_leave_no_file_behind() {
    for (name, number) in [("-INT", 2), ("-TERM", 15), ("-HUP", 1)] {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out.gguf");
        let code = while_writing(binary(), &out, |child| signal(name, child));
        assert_eq!(code, Some(128 + number), "{name}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0, "{name}");
    }
    // Started as `nohup` starts it, a process outlives its terminal.
    let folder = tempfile::tempdir().expect("a folder");
    let mut deaf = Command::new("sh");
    deaf.args(["-c", r#"trap "" HUP; exec "$0" "$@""#, env!("CARGO_BIN_EXE_muse")]);
    let code = while_writing(deaf, &folder.path().join("out.gguf"), |child| {
        signal("-HUP", child);
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(child.try_wait().expect("its state"), None, "it goes on");
        signal("-TERM", child);
    });
    assert_eq!(code, Some(128 + 15));
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
}

#[test]
fn what_a_killed_run_left_is_found_by_the_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.gguf");
    let (nano, part) = (nano_dir().join("target"), folder.path().join("out.gguf.muse-part"));
    let run = |out: &Path| muse(&["quantize", path(&nano), path(out), "--type", "q8_0"]);
    let code = while_writing(binary(), &out, |child| {
        run(&out).refused(&["out.gguf", "another process is writing it"]);
        child.kill().expect("killed");
    });
    assert_eq!(code, None);
    assert!(part.exists());
    let other = run(&folder.path().join("other.gguf"));
    assert!(other.code == Some(0) && other.err.contains("out.gguf.muse-part ("), "{}", other.err);
    assert!(other.err.contains("remove it if you do not need it"), "{}", other.err);
    let again = run(&out);
    assert!(again.code == Some(0) && again.err.contains("it is written over"), "{}", again.err);
    assert!(!part.exists());
    muse(&["inspect", path(&out)]).ok();
}
