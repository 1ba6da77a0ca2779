//! How fast answers are heard: megabytes of plain answer, of reasoning beside declared tools, and
//! of a call, in large chunks and token by token. Times are those on a core:
//! what waits for other programs is not counted. `--smoke` only shows that it runs.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use muse_atem::{TextOutputParser, TokenOutputParser, Tokenizer};
use muse_core::contract::{
    Conversation, OutputParser, ParsedEvent, Token, Tokenizer as _, Tool, Vocabulary,
};

fn main() {
    let smoke = std::env::args().any(|argument| argument == "--smoke");
    let rounds = Duration::from_millis(if smoke { 0 } else { 500 });
    let megabytes = if smoke { 1 } else { 16 };
    let words = "The tide turns at noon, and the ferry leaves <soon> after; 3 < 7. ";
    let prose = words.repeat(megabytes * 1_000_000 / words.len());
    let tools = Conversation { tools: vec![tool()], ..Conversation::default() };
    let none = Conversation::default();
    let answer = " to=user<|message|>".to_owned() + &prose + "<|eot|>";
    let thought = " to=self<|message|>".to_owned() + &prose + "<|eot|>";
    let call = " to=files.put<|message|><atem:function_calls>\n<atem:invoke name=\"files.put\">\n\
                <atem:parameter name=\"body\">"
        .to_owned()
        + &prose
        + "</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eot|>";
    println!("{:<44} {:>10}", "text", "MB/s");
    for (name, conversation, text) in [
        ("answer", &none, &answer),
        ("answer beside tools", &tools, &answer),
        ("reasoning beside tools", &tools, &thought),
        ("call", &tools, &call),
    ] {
        for size in [4096, 64, 4] {
            let seconds = best(rounds, || hear_text(conversation, text, size));
            println!("{:<44} {:>10.0}", format!("{name}, parts of {size}"), rate(text, seconds));
        }
    }
    println!("{:<44} {:>10} {:>12}", "tokens", "MB/s", "ns a token");
    let tokenizer = nano();
    for (name, conversation, text) in [
        ("answer", &none, &answer),
        ("answer beside tools", &tools, &answer),
        ("call", &tools, &call),
    ] {
        let tokens = encode(text, &tokenizer);
        let seconds = best(rounds, || hear_tokens(conversation, &tokens, &tokenizer));
        let each = seconds * 1e9 / tokens.len() as f64;
        println!("{name:<44} {:>10.0} {each:>12.1}", rate(text, seconds));
    }
}

fn tool() -> Tool {
    Tool {
        name: "files.put".to_owned(),
        description: String::new(),
        parameters: r#"{"type": "object", "properties": {"body": {"type": "string"}}}"#.to_owned(),
        strict: false,
    }
}

fn nano() -> Arc<Tokenizer> {
    let file = muse_testkit::nano_dir().join("target/tokenizer.json");
    let json = std::fs::read(file).expect("the embedded checkpoint");
    Tokenizer::new(Vocabulary::HuggingFace(json)).expect("a tokenizer")
}

/// Text with its first and last marks as tokens.
fn encode(text: &str, tokenizer: &Tokenizer) -> Vec<Token> {
    let mut tokens = Vec::new();
    let (header, body) = text.split_once("<|message|>").expect("a header");
    tokenizer.encode(header, &mut tokens);
    tokens.extend(tokenizer.special_token("<|message|>"));
    tokenizer.encode(body.strip_suffix("<|eot|>").expect("an end"), &mut tokens);
    tokens.extend(tokenizer.special_token("<|eot|>"));
    tokens
}

fn hear_text(conversation: &Conversation, text: &str, size: usize) {
    let mut listener = TextOutputParser::new(conversation, &[]);
    let mut out = Vec::new();
    for part in text.as_bytes().chunks(size) {
        listener.hear_bytes(part, &mut out);
        drop_heard(&mut out);
    }
    listener.finish(true, &mut out);
    drop_heard(&mut out);
}

fn hear_tokens(conversation: &Conversation, tokens: &[Token], tokenizer: &Arc<Tokenizer>) {
    let mut listener = TokenOutputParser::new(conversation, &[], Arc::clone(tokenizer) as Arc<_>);
    let mut out = Vec::new();
    for token in tokens {
        listener.push(*token, &mut out);
        drop_heard(&mut out);
    }
    listener.finish(true, &mut out);
    drop_heard(&mut out);
}

fn drop_heard(out: &mut Vec<ParsedEvent>) {
    black_box(&*out);
    out.clear();
}

/// Seconds a call: the best of some rounds, since other work only ever adds.
fn best(rounds: Duration, mut call: impl FnMut()) -> f64 {
    let (started, mut best) = (Instant::now(), f64::INFINITY);
    loop {
        let round = (Instant::now(), worked());
        call();
        let seconds = match (round.1, worked()) {
            (Some(before), Some(after)) => (after - before).as_secs_f64(),
            _ => round.0.elapsed().as_secs_f64(),
        };
        best = best.min(seconds);
        if started.elapsed() >= rounds {
            return best;
        }
    }
}

/// How long this thread had a core, where the system tells.
fn worked() -> Option<Duration> {
    // The system counts up to the last time it looked at the thread: give way, and it looks.
    std::thread::yield_now();
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    told.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

fn rate(text: &str, seconds: f64) -> f64 {
    text.len() as f64 / seconds / 1e6
}
