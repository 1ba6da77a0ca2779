//! The parser's work is linear in the output, whatever a model generates and however it is split.

use muse_core::contract::{Conversation, ParsedEvent, Tool};

use super::{TextOutputParser, work_counter};

fn conversation() -> Conversation {
    let tool = |name: &str| Tool {
        name: name.to_owned(),
        description: String::new(),
        parameters: r#"{"type": "object", "properties": {"path": {"type": "string"}}}"#.to_owned(),
        strict: false,
    };
    Conversation { tools: vec![tool("files.put"), tool("count")], ..Conversation::default() }
}

/// Parses `text` in parts of `size` bytes; returns the bytes scanned per byte, and the events.
fn push_all(text: &str, size: usize, stop: &[String]) -> (f64, Vec<ParsedEvent>) {
    let mut parser = TextOutputParser::new(&conversation(), stop);
    let mut out = Vec::new();
    work_counter::take();
    for part in text.as_bytes().chunks(size) {
        parser.push_bytes(part, &mut out);
    }
    parser.finish(true, &mut out);
    (work_counter::take() as f64 / text.len() as f64, out)
}

fn check_linear(name: &str, text: &str) {
    let start = &text[..text.floor_char_boundary(300_000)];
    for (text, size) in [(start, 1), (text, 97), (text, text.len())] {
        let (steps, _) = push_all(text, size, &[]);
        assert!(steps < 60.0, "{name}: {steps} bytes looked at per byte in parts of {size}");
    }
}

const CALL: &str = " to=files.put<|message|><atem:function_calls>\n<atem:invoke name=\"files.put\">\n\
                    <atem:parameter name=\"path\">";

#[test]
fn an_answer_of_4_mb() {
    check_linear("answer", &(" to=user<|message|>".to_owned() + &"word to <b> ".repeat(350_000)));
    check_linear("reasoning", &(" to=self<|message|>".to_owned() + &" to=coun".repeat(500_000)));
}

#[test]
fn server_dos_004_closers_without_end() {
    check_linear("closers", &(CALL.to_owned() + &"</atem:parameter> or".repeat(200_000)));
    let chain = "</atem:parameter>\n</atem:invoke>\n</atem:function_calls>x";
    check_linear("chains", &(CALL.to_owned() + &chain.repeat(70_000)));
}

#[test]
fn openers_in_a_value() {
    check_linear("parameters", &(CALL.to_owned() + &"<atem:parameter".repeat(700_000)));
    let nested = "<atem:function_calls><atem:invoke name=\"count\"><atem:parameter name=\"n\">";
    check_linear("nested", &(CALL.to_owned() + &nested.repeat(100_000)));
    check_linear("nested outside", &(" to=count<|message|>".to_owned() + &nested.repeat(100_000)));
    let name = "<atem:invoke name=\"".to_owned() + &"n".repeat(4000);
    check_linear("long names", &(" to=count<|message|>".to_owned() + &name.repeat(500)));
}

#[test]
fn incomplete_special_tokens_and_headers() {
    check_linear(
        "starts",
        &(" to=user<|message|>".to_owned() + &"<|start|>assistant to=".repeat(100_000)),
    );
    check_linear(
        "ends in a value",
        &(CALL.to_owned() + &"<|eot|><|start|>assistant x".repeat(50_000)),
    );
    let blank = " to=count<|message|>".to_owned() + &" ".repeat(3000);
    check_linear("blanks", &(" to=self<|message|>".to_owned() + &blank.repeat(300)));
}

#[test]
fn many_parameters() {
    let parameters: String = (0..100_000)
        .map(|i| format!("<atem:parameter name=\"p{i}\">{i}</atem:parameter>\n"))
        .collect();
    let text = " to=count<|message|><atem:invoke name=\"count\">\n".to_owned()
        + &parameters
        + "</atem:invoke><|eot|>";
    let start = muse_testkit::CpuTimer::start();
    let (_, out) = push_all(&text, text.len(), &[]);
    assert!(matches!(out.as_slice(), [ParsedEvent::ToolCall(_)]));
    assert!(start.elapsed().as_secs() < 30, "took {:?}", start.elapsed());
}

#[test]
fn server_dos_005_each_bracket_is_emitted_at_once() {
    let mut parser = TextOutputParser::new(&conversation(), &[]);
    let mut out = Vec::new();
    parser.push(" to=user<|message|>", &mut out);
    for count in 0..50_000 {
        out.clear();
        parser.push("<", &mut out);
        // The last bracket may begin a special token; the next bracket shows that it did not.
        assert_eq!(out.len(), usize::from(count > 0), "bracket {count}");
    }
}

#[test]
fn a_long_stop_text_costs_no_more() {
    let stop = ["a".repeat(10_000) + "b"];
    let text = " to=user<|message|>".to_owned() + &"a".repeat(1_000_000);
    let start = muse_testkit::CpuTimer::start();
    let (_, out) = push_all(&text, 1, &stop);
    let content: usize =
        out.iter().map(|event| matches!(event, ParsedEvent::Content(_)) as usize).sum();
    assert!(content > 0);
    assert!(start.elapsed().as_secs() < 30, "took {:?}", start.elapsed());
}
