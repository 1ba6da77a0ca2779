//! `muse chat` with the embedded model.

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
fn an_interrupt_stops_the_answer_and_not_the_conversation() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muse"));
    let chat = command.args(["chat", "--threads", "1"]).args(DATE);
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
