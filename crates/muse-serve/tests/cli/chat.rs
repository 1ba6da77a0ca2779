//! `muse chat` with the embedded model.

use std::fs::File;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::*;

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

/// What `muse chat` with these arguments does with this at standard input: the messages that the
/// model reads, as many tokens as when they are given as arguments.
fn prompt_tokens(args: &[&str], input: &str) -> u64 {
    let args = [&["chat", "--json", "--max-tokens", "1"], args, &DATE[..]].concat();
    muse_with(&args, input).json()["usage"]["prompt_tokens"].as_u64().expect("a count")
}

#[test]
fn piped_lines_are_one_message_unless_line_by_line() {
    let chat = &[&["chat"], &DATE[..]].concat();
    let out = muse_with(chat, "What is 3 + 4?\n").ok();
    assert_eq!(out, "reasoning: Add 3 and 4.\n\n3 + 4 = 7.\n");
    let lines = [&chat[..], &["--line-by-line"]].concat();
    let name = "My name is Leo.\n\nWhat is 3 + 4?\nWhat is my name?\n";
    let by_line = muse_with(&lines, name).ok();
    assert!(
        by_line.contains("3 + 4 = 7.") && by_line.ends_with("Your name is Leo.\n"),
        "{by_line}"
    );
    let message = "My name is Leo.\nWhat is my name?";
    let greedy = [&chat[..], &["--greedy"]].concat();
    let piped = muse_with(&greedy, format!("{message}\n")).ok();
    assert_eq!(piped, muse(&[&greedy[..], &[message]].concat()).ok());
    assert_eq!(prompt_tokens(&["-"], &format!("{message}\n")), prompt_tokens(&[message], ""));
}

#[test]
fn a_pipe_is_joined_to_the_message_and_holds_no_commands() {
    let joined = prompt_tokens(&["Summarise:"], "one\ntwo\n");
    assert_eq!(joined, prompt_tokens(&["Summarise:\n\none\ntwo"], ""));
    let text = prompt_tokens(&["/etc/hosts"], "");
    for path in ["/etc/hosts", "/etc/hosts\n"] {
        assert_eq!(prompt_tokens(&["-"], path), text);
    }
    let chat = &[&["chat"], &DATE[..]].concat();
    for args in [&chat[..], &[&chat[..], &["--line-by-line"]].concat()] {
        for line in ["/etc/hosts\n", "/quit\n", "/help\n"] {
            let out = muse_with(args, line).ok();
            assert!(!out.is_empty() && !out.contains("forget the conversation"), "{line}: {out}");
        }
    }
    for args in [&["chat"][..], &["chat", "-"], &["chat", ""]] {
        muse_with(args, "\n").refused(&["message is empty", "standard input"]);
    }
    muse_with(&["chat", "-"], [0xff]).refused(&["UTF-8"]);
    muse_with(&["chat", "-"], vec![b'a'; (16 << 20) + 1]).refused(&["16 MiB"]);
}

/// A pipe that a process inherits and that nobody writes to or closes.
#[test]
fn a_silent_pipe_is_waited_for_and_a_note_says_so() {
    for (message, input, words) in [
        (&["What is 3 + 4?"][..], "", "appended to the message"),
        (&[], "What is 3 + 4?\n", "the message"),
        (&["-"], "\u{feff}What is 3 + 4?\r\n", "the message"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muse"));
        command.arg("chat").args(DATE).args(message).stdin(Stdio::piped());
        let pipes = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().expect("muse starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut note = String::new();
        stderr.read_line(&mut note).expect("UTF-8");
        assert!(note.starts_with("note: waiting for ") && note.contains(words), "{note}");
        assert!(note.contains("< /dev/null"), "{note}");
        let mut pipe = child.stdin.take().expect("a pipe");
        pipe.write_all(input.as_bytes()).expect("a reader");
        drop(pipe);
        let output = child.wait_with_output().expect("an end");
        let answer = String::from_utf8(output.stdout).expect("UTF-8");
        assert_eq!(answer, "reasoning: Add 3 and 4.\n\n3 + 4 = 7.\n", "{message:?}");
    }
}

/// A terminal with `muse` in it, and what it shows.
struct Terminal {
    keys: File,
    shown: String,
    child: Child,
}

impl Terminal {
    fn of(args: &[&str]) -> Self {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&keys).and_then(|()| unlockpt(&keys)).expect("its other end");
        let name = ptsname(&keys, Vec::new()).expect("its name").into_string().expect("UTF-8");
        let open = || File::options().read(true).write(true).open(&name).expect("the terminal");
        let mut command = Command::new(env!("CARGO_BIN_EXE_muse"));
        let muse = command.args(args).env("TERM", "xterm").env("NO_COLOR", "1");
        let child = muse.stdin(open()).stdout(open()).stderr(open()).spawn().expect("muse starts");
        Self { keys: keys.into(), shown: String::new(), child }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("a reader");
    }

    /// Reads until the terminal has shown this text.
    #[track_caller]
    fn wait_for(&mut self, text: &str) {
        let mut bytes = [0; 4096];
        loop {
            if let Some(at) = self.shown.find(text) {
                self.shown.drain(..at + text.len());
                return;
            }
            match self.keys.read(&mut bytes) {
                Ok(count @ 1..) => self.shown += &String::from_utf8_lossy(&bytes[..count]),
                end => panic!("muse ended ({end:?}) before {text:?}: {}", self.shown),
            }
        }
    }
}
#[test]
fn an_interrupt_stops_the_answer_and_not_the_conversation() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muse"));
    let chat = command.args(["chat", "--line-by-line", "--threads", "1"]).args(DATE);
    let pipes = chat.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().expect("muse starts");
    let mut input = child.stdin.take().expect("a pipe");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    writeln!(input, "Hello").expect("a reader");
    while line != "Hello! How can I help you?\n" {
        line.clear();
        assert_ne!(output.read_line(&mut line).expect("UTF-8"), 0, "the first answer comes");
    }
    // The next prompt takes much longer than the signal, which is sent when its prefill has begun.
    let begun = cpu_ticks(&child) + 5;
    writeln!(input, "{}", "no ".repeat(1200)).expect("a reader");
    while cpu_ticks(&child) < begun {
        std::thread::sleep(Duration::from_millis(1));
    }
    signal("-INT", &child);
    writeln!(input, "What is 7 + 8?").expect("a reader");
    drop(input);
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("UTF-8");
    let done = child.wait_with_output().expect("an end");
    assert_eq!((done.status.code(), done.stderr.as_slice()), (Some(0), &b"(stopped)\n"[..]));
    assert_eq!(rest, "reasoning: Add 7 and 8.\n\n7 + 8 = 15.\n");
}

#[test]
fn a_conversation_at_a_terminal_survives_an_interrupt_and_a_resize() {
    // Hot enough that the answer does not end by itself before it is stopped.
    let hot = ["--temperature", "9", "--top-k", "0", "--top-p", "1", "--min-p", "0", "--seed", "1"];
    let mut terminal = Terminal::of(&[&["chat", "--threads", "1"], &hot[..], &DATE[..]].concat());
    terminal.wait_for("> ");
    terminal.press("Hello\r");
    // The editor leaves its mode of pasting, then the answer's first words come.
    terminal.wait_for("\x1b[?2004l");
    terminal.wait_for(" ");
    signal("-INT", &terminal.child);
    terminal.wait_for("(stopped)");
    terminal.wait_for("> ");
    signal("-WINCH", &terminal.child);
    // Were the text still there, no command would follow.
    terminal.press("text\x03/help\r");
    terminal.wait_for("forget the conversation");
    terminal.wait_for("> ");
    terminal.press("\x03");
    assert_eq!(terminal.child.wait().expect("an end").code(), Some(0));
}
