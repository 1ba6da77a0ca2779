//! The built `muse` as a user runs it, against the reference outputs of the embedded muse-nano and
//! of the checkpoint without a tokenizer.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use muse_testkit::{Golden, assert_close, golden_dir, nano_dir};
use serde_json::Value;

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

fn muse_with(args: &[&str], input: &str) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muse"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MUSE_") {
            command.env_remove(name);
        }
    }
    let pipes = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = pipes.stderr(Stdio::piped()).spawn().expect("muse starts");
    // A command that ends without reading its input closes the pipe: no fault here.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
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

#[test]
fn the_embedded_model_answers_with_its_reasoning() {
    let out = muse(&[&["chat", "What is 4 + 5?"], &DATE[..]].concat()).ok();
    let (reasoning, answer) = out.split_once("\n\n").expect("reasoning, then the answer");
    assert_eq!((reasoning, answer), ("reasoning: Add 4 and 5.", "4 + 5 = 9.\n"));
}

#[test]
fn chat_json_is_one_complete_object() {
    let args = ["chat", "--json", "What is 7 + 8?"];
    let answer = muse(&[&args, &DATE[..]].concat()).json();
    let golden = &chats()["chats"]["sum"];
    assert_eq!(answer["reasoning"], "Add 7 and 8.");
    assert_eq!(answer["content"], "7 + 8 = 15.");
    assert_eq!(answer["tool_calls"], Value::Array(Vec::new()));
    assert_eq!(answer["finish_reason"], "stop");
    let (usage, timings) = (&answer["usage"], &answer["timings"]);
    let prompt = golden["prompt_ids"].as_array().expect("a list").len();
    assert_eq!(usage["prompt_tokens"], prompt);
    assert_eq!(usage["completion_tokens"], golden["f32"]["tokens"]);
    assert!(timings["ar_decode_tokens_per_second"].as_f64().expect("a rate") > 0.0, "{timings}");
}

#[test]
fn reasoning_strength_and_system_reach_the_model() {
    let low = ["chat", "--json", "--reasoning", "low", "What is the capital of Japan?"];
    let answer = muse(&[&low, &DATE[..]].concat()).json();
    assert_eq!(answer["reasoning"], "");
    assert_eq!(answer["content"], "The capital of Japan is Tokyo.");
    let golden = &chats()["chats"]["opposite"];
    let system = golden["messages"][0]["content"].as_str().expect("a text");
    let question = golden["messages"][1]["content"].as_str().expect("a text");
    let args = ["chat", "--json", "--system", system, question];
    let answer = muse(&[&args, &DATE[..]].concat()).json();
    assert_eq!(answer["content"], "The opposite of hot is cold.");
    let prompt = golden["prompt_ids"].as_array().expect("a list").len();
    assert_eq!(answer["usage"]["prompt_tokens"], prompt);
}

#[test]
fn a_piped_conversation_remembers_until_cleared() {
    let chat = &[&["chat"], &DATE[..]].concat();
    let name = "My name is Leo.\n\nWhat is 3 + 4?\nWhat is my name?\n";
    let out = muse_with(chat, name).ok();
    assert!(out.contains("3 + 4 = 7.") && out.ends_with("Your name is Leo.\n"), "{out}");
    let out = muse_with(chat, "My name is Leo.\n/clear\nWhat is my name?\n").ok();
    assert!(!out.contains("Your name is Leo."), "{out}");
    let out = muse_with(chat, "/help\n/quit\nHello\n").ok();
    assert!(out.contains("/clear") && !out.contains("Hello!"), "{out}");
    let Said { code, err, .. } = muse_with(chat, "/dance\n");
    assert_eq!((code, err.as_str()), (Some(1), "error: no command /dance; /help lists them\n"));
}

#[test]
fn generate_equals_the_reference_plain_and_drafted() {
    let chats = chats();
    for name in ["hello", "sum2", "story", "multi"] {
        let golden = &chats["chats"][name];
        let ids = list(&golden["prompt_ids"]);
        for extra in [&["--no-draft"][..], &[]] {
            let args = ["generate", "--greedy", "--json", "--kv", "f32", "--ids", &ids];
            let done = muse(&[&args, extra].concat()).json();
            assert_eq!(done["ids"], golden["f32"]["ids"], "{name} {extra:?}");
            assert_eq!(done["text"], golden["f32"]["text"], "{name} {extra:?}");
            assert_eq!(done["finish_reason"], "stop");
            let accepted = done["accepted"].as_array().expect("a list");
            if extra.is_empty() {
                assert_eq!(done["accepted"], golden["f32"]["accepted"], "{name}");
            } else {
                assert!(accepted.is_empty(), "{accepted:?}");
            }
        }
    }
}

#[test]
fn a_raw_prompt_is_read_with_its_marks() {
    let golden = &chats()["chats"]["hello"];
    let prompt = golden["prompt"].as_str().expect("a text");
    let done = muse(&["generate", "--json", "--prompt", prompt]).json();
    assert_eq!(done["usage"]["prompt_tokens"], golden["prompt_ids"].as_array().unwrap().len());
    assert_eq!(done["ids"], golden["f32"]["ids"]);
    // Without the mark that begins a text it is put there, unless that is refused.
    let bare = prompt.strip_prefix("<|begin_of_text|>").expect("the mark");
    let done = muse(&["generate", "--json", "--prompt", bare]).json();
    assert_eq!(done["ids"], golden["f32"]["ids"]);
    let done = muse(&["generate", "--json", "--no-bos", "--max-tokens", "1", "--prompt", bare]);
    let without = golden["prompt_ids"].as_array().unwrap().len() - 1;
    assert_eq!(done.json()["usage"]["prompt_tokens"], without);
    // As text the stop token is left out.
    let text = golden["f32"]["text"].as_str().unwrap().strip_suffix("<|eot|>").unwrap();
    assert_eq!(muse(&["generate", "--prompt", prompt]).ok(), format!("{text}\n"));
}

#[test]
fn generation_is_bounded_and_passes_stop_tokens_when_told() {
    let golden = Golden::open("tiny/golden/text_f32.safetensors");
    let (prompt, all) = (golden.tokens("p33.ids"), golden.tokens("greedy.p33"));
    let ids: Vec<String> = prompt.iter().map(|token| token.0.to_string()).collect();
    let model = tiny();
    let args = ["generate", "--model", path(&model), "--ids", &ids.join(","), "--greedy"];
    let bounds = ["--kv", "f32", "--ignore-stop", "--max-tokens", "64", "--json"];
    let done = muse(&[&args[..], &bounds].concat()).json();
    let expected: Vec<u32> = all[prompt.len()..].iter().map(|token| token.0).collect();
    assert_eq!(done["ids"], serde_json::json!(expected));
    assert_eq!((&done["finish_reason"], &done["text"]), (&"length".into(), &Value::Null));
    let out = muse(&[&args[..], &["--kv", "f32", "--ignore-stop", "--max-tokens", "2"]].concat());
    assert_eq!(out.ok(), format!("{},{}\n", expected[0], expected[1]));
}

#[test]
fn logits_equal_the_reference() {
    let golden = Golden::open("tiny/golden/text_f32.safetensors");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("logits.safetensors");
    let model = tiny();
    for (name, last) in [("p1", 1), ("p7", 7), ("p33", 33), ("p100", 4)] {
        let prompt = golden.tokens(&format!("{name}.ids"));
        let ids: Vec<String> = prompt.iter().map(|token| token.0.to_string()).collect();
        let args = ["generate", "--model", path(&model), "--ids", &ids.join(","), "--kv", "f32"];
        muse(&[&args[..], &["--max-tokens", "1", "--logits", path(&file)]].concat()).ok();
        let written = Golden::open_path(&file);
        let (shape, logits) = written.floats("logits");
        assert_eq!(shape, &[prompt.len(), 1024]);
        let (_, expected) = golden.floats(&format!("{name}.logits_last{last}"));
        assert_close(name, &logits[logits.len() - expected.len()..], expected, 5e-4);
    }
    let entries = std::fs::read_dir(folder.path()).expect("the folder").count();
    assert_eq!(entries, 1, "nothing else is left beside the file");
}

#[test]
fn quantized_and_gguf_checkpoints_answer_alike() {
    let golden = &chats()["chats"]["sum"];
    let ids = list(&golden["prompt_ids"]);
    let gguf = golden_dir().join("nano/gguf");
    for (target, drafter) in [("bf16", "bf16"), ("q8_0", "q8_0")] {
        let target = gguf.join(format!("target.{target}.gguf"));
        let drafter = gguf.join(format!("dflash.{drafter}.gguf"));
        let files = ["--model", path(&target), "--draft", path(&drafter)];
        let args = ["generate", "--greedy", "--json", "--ids", &ids];
        let done = muse(&[&args[..], &files].concat()).json();
        assert_eq!(done["ids"], golden["f32"]["ids"]);
        assert!(!done["accepted"].as_array().expect("a list").is_empty());
    }
    for kv in ["f32", "f16", "q8_0"] {
        let done = muse(&["generate", "--json", "--kv", kv, "--ids", &ids]).json();
        assert_eq!(done["ids"], golden["f32"]["ids"], "{kv}");
    }
}

#[test]
fn inspect_tells_of_folders_and_files() {
    let out = muse(&["inspect", path(&nano_dir().join("target"))]).ok();
    for word in ["muse", "bf16", "1024"] {
        assert!(out.to_lowercase().contains(word), "no {word} in {out}");
    }
    let out = muse(&["inspect", path(&golden_dir().join("nano/gguf/target.q8_0.gguf"))]).ok();
    assert!(out.to_lowercase().contains("q8_0"), "{out}");
}

#[test]
fn broken_files_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("half.gguf");
    let whole = std::fs::read(golden_dir().join("nano/gguf/target.q8_0.gguf")).expect("a file");
    std::fs::write(&file, &whole[..whole.len() / 2]).expect("a file");
    muse(&["inspect", path(&file)]).refused(&["half.gguf"]);
    muse(&["chat", "--model", path(&file), "Hello"]).refused(&["half.gguf"]);
    let nowhere = folder.path().join("nowhere");
    muse(&["inspect", path(&nowhere)]).refused(&["nowhere"]);
    muse(&["chat", "--model", path(&nowhere), "Hello"]).refused(&["nowhere"]);
    muse(&["chat", "--model", path(folder.path()), "Hello"]).refused(&["config.json"]);
}

#[test]
fn models_that_do_not_fit_are_refused() {
    let (nano, tiny) = (nano_dir().join("target"), golden_dir().join("tiny/assistant"));
    muse(&["chat", "--model", path(&nano), "--draft", path(&tiny), "Hello"])
        .refused(&["drafter", "128", "256"]);
    muse(&["chat", "--model", path(&tiny), "Hello"]).refused(&["text model"]);
    muse(&["chat", "--draft", path(&nano), "Hello"]).refused(&["drafter"]);
    let model = self::tiny();
    muse(&["chat", "--model", path(&model), "Hello"]).refused(&["tokenizer", "generate"]);
    muse(&["generate", "--model", path(&model), "--prompt", "Hello"]).refused(&["--ids"]);
    let mmproj = golden_dir().join("nano/gguf/mmproj.bf16.gguf");
    muse(&["chat", "--mmproj", path(&mmproj), "Hello"]).refused(&["--mmproj", "pictures"]);
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    muse(&["generate", "--ids", "5,4096"]).refused(&["4096", "1024"]);
    muse(&["generate", "--ids", "5", "--top-p", "7"]).refused(&["top_p"]);
    let long = vec!["5"; 200].join(",");
    muse(&["generate", "--ids", &long, "--context", "128"]).refused(&["200", "128"]);
    muse(&["generate", "--ids", "5", "--logits", "/nowhere/logits"]).refused(&["/nowhere/logits"]);
    muse(&["chat", "--date", "tomorrow", "Hello"]).refused(&["tomorrow"]);
    muse(&["chat", "--server", "127.0.0.1:1", "Hello"]).refused(&["127.0.0.1:1", "muse serve"]);
    muse(&["chat", "--config", "/nowhere/muse.toml", "Hello"]).refused(&["/nowhere/muse.toml"]);
}

/// A server of the embedded model, on ports that were free.
struct Server {
    process: Child,
    log: std::io::Lines<BufReader<ChildStderr>>,
    grpc: String,
}

impl Server {
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muse"));
        let addresses = ["serve", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"];
        let mut process =
            command.args(addresses).stderr(Stdio::piped()).spawn().expect("muse starts");
        let mut log = BufReader::new(process.stderr.take().expect("a pipe")).lines();
        let mut plan = false;
        let grpc = loop {
            let line = log.next().expect("an address is logged").expect("UTF-8");
            plan |= line.contains("memory plan: weights");
            if let Some((_, rest)) = line.split_once("grpc=") {
                break rest.split_whitespace().next().expect("an address").to_owned();
            }
        };
        assert!(plan, "the memory plan comes before the addresses");
        Self { process, log, grpc }
    }

    /// Sends SIGTERM; the exit code and what was logged on the way out.
    fn stop(mut self) -> (Option<i32>, Vec<String>) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill").success());
        let log = self.log.map(|line| line.expect("UTF-8")).collect();
        (self.process.wait().expect("an end").code(), log)
    }
}

#[test]
fn chat_talks_to_a_server_that_drains_when_told() {
    let server = Server::start();
    let chat = ["chat", "--server", &server.grpc];
    let answer = muse(&[&chat, &DATE[..], &["--json", "What is 7 + 8?"]].concat()).json();
    assert_eq!(
        (&answer["content"], &answer["reasoning"]),
        (&"7 + 8 = 15.".into(), &"Add 7 and 8.".into())
    );
    let out = muse_with(&[&chat, &DATE[..]].concat(), "My name is Leo.\nWhat is my name?\n").ok();
    assert!(out.ends_with("Your name is Leo.\n"), "{out}");
    let (code, log) = server.stop();
    assert_eq!(code, Some(0), "{log:?}");
    assert!(log.iter().any(|line| line.contains("stopping")), "{log:?}");
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muse"));
    let pipes = command.args(["generate", "--ids", "5", "--ignore-stop"]).stdout(Stdio::piped());
    let mut child = pipes.stderr(Stdio::piped()).spawn().expect("muse starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("muse ends");
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn bad_usage_ends_with_2() {
    for args in [
        &["dance"][..],
        &["chat", "--json"],
        &["chat", "--kv", "f64", "Hello"],
        &["chat", "--reasoning", "heroic", "Hello"],
        &["chat", "--server", "127.0.0.1:1", "--kv", "f32", "Hello"],
        &["generate"],
        &["generate", "--ids", "1,x"],
        &["generate", "--ids", "1", "--prompt", "x"],
        &["generate", "--ids", "1", "--greedy", "--temperature", "1"],
        &["chat", "--no-draft", "--max-draft", "3", "Hello"],
        &["inspect"],
        &["serve", "--grpc", "somewhere"],
    ] {
        let Said { code, out, err } = muse(args);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}: {err}");
        assert!(err.starts_with("error: "), "{err}");
    }
}
