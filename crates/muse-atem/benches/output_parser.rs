//! Throughput of the output parser: megabytes of plain answer, of reasoning beside declared tools,
//! and of a call, in large parts and token by token. Times are CPU times. `--smoke` only shows that
//! it runs.

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
            let seconds = best(rounds, || parse_text(conversation, text, size));
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
        let seconds = best(rounds, || parse_tokens(conversation, &tokens, &tokenizer));
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

/// The tokens of a text whose first and last special tokens are spelled.
fn encode(text: &str, tokenizer: &Tokenizer) -> Vec<Token> {
    let mut tokens = Vec::new();
    let (header, body) = text.split_once("<|message|>").expect("a header");
    tokenizer.encode(header, &mut tokens);
    tokens.extend(tokenizer.special_token("<|message|>"));
    tokenizer.encode(body.strip_suffix("<|eot|>").expect("an end"), &mut tokens);
    tokens.extend(tokenizer.special_token("<|eot|>"));
    tokens
}

fn parse_text(conversation: &Conversation, text: &str, size: usize) {
    let mut parser = TextOutputParser::new(conversation, &[]);
    let mut out = Vec::new();
    for part in text.as_bytes().chunks(size) {
        parser.push_bytes(part, &mut out);
        drop_events(&mut out);
    }
    parser.finish(true, &mut out);
    drop_events(&mut out);
}

fn parse_tokens(conversation: &Conversation, tokens: &[Token], tokenizer: &Arc<Tokenizer>) {
    let mut parser = TokenOutputParser::new(conversation, &[], Arc::clone(tokenizer) as Arc<_>);
    let mut out = Vec::new();
    for token in tokens {
        parser.push(*token, &mut out);
        drop_events(&mut out);
    }
    parser.finish(true, &mut out);
    drop_events(&mut out);
}

fn drop_events(out: &mut Vec<ParsedEvent>) {
    black_box(&*out);
    out.clear();
}

/// Seconds per call: the minimum over several rounds, since other processes only ever add time.
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

/// CPU time of this thread, where the system reports it.
fn worked() -> Option<Duration> {
    // The system accounts up to the last scheduling event; yielding causes one.
    std::thread::yield_now();
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    schedstat.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

fn rate(text: &str, seconds: f64) -> f64 {
    text.len() as f64 / seconds / 1e6
}
