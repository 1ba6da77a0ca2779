//! How fast the embedded muse-nano decodes on one core, without and with its drafter, as one JSON
//! object a line. Wall clock: compare only runs of one machine. `--smoke` only shows that it runs.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc;

use muse_core::contract::{Done, Event, FinishReason, Request, Sampling, Segment, Token};
use muse_serve::App;
use muse_serve::runtime::{self, LoadOptions};
use muse_testkit::golden_dir;
use serde_json::{Value, json};

const RUNS: usize = 5;
const TOKENS: u32 = 512;

fn main() {
    let runs = if std::env::args().any(|argument| argument == "--smoke") { 1 } else { RUNS };
    let text = std::fs::read(golden_dir().join("nano/chats.json")).expect("a golden");
    let chats: Value = serde_json::from_slice(&text).expect("JSON");
    let chats = chats["chats"].as_object().expect("chats");
    let prompts: Vec<Vec<Token>> = chats.values().map(|chat| tokens(&chat["prompt_ids"])).collect();
    // Without a drafter, what is said does not matter: one long completion. With one it does: all
    // the reference chats, to their ends.
    let plain = load(Some(0));
    let decode = (0..runs).map(|_| rate(&[run(&plain, &prompts[0], true)])).fold(0.0, f64::max);
    report("plain", decode, 0.0);
    let drafted = load(None);
    let (mut decode, mut accepted) = (0.0_f64, 0.0);
    for _ in 0..runs {
        let done: Vec<Done> = prompts.iter().map(|prompt| run(&drafted, prompt, false)).collect();
        let drafts = done.iter().flat_map(|done| done.usage.accepted_by_verify());
        accepted = f64::from(drafts.clone().sum::<u32>()) / drafts.count() as f64;
        decode = decode.max(rate(&done));
    }
    report("drafted", decode, accepted);
}

fn load(max_draft: Option<u32>) -> App {
    let options = LoadOptions { threads: Some(1), max_draft, ..LoadOptions::default() };
    let loaded = runtime::load(&options, &mut |_, _, _| {}).expect("the embedded model");
    loaded.start(Arc::new(|error| panic!("{error}"))).expect("an engine")
}

fn tokens(ids: &Value) -> Vec<Token> {
    let ids = ids.as_array().expect("a list").iter();
    ids.map(|id| Token(id.as_u64().expect("an id") as u32)).collect()
}

fn run(app: &App, prompt: &[Token], endless: bool) -> Done {
    let request = Request {
        prompt: vec![Segment::Tokens(prompt.to_vec())],
        sampling: Sampling::default(),
        stop: if endless { Vec::new() } else { app.stop.clone() },
        max_tokens: Some(TOKENS),
        max_draft: None,
        logprobs: None,
        constraint: None,
        deadline: None,
        ..Request::default()
    };
    let (sender, receiver) = mpsc::channel();
    let sink = move |event| {
        if let Event::Done(done) = event {
            sender.send(done).expect("a receiver");
        }
        ControlFlow::Continue(())
    };
    app.engine.submit(request, Box::new(sink)).expect("a queued request");
    let done = receiver.recv().expect("an end");
    assert!(matches!(done.reason, FinishReason::Stop(_) | FinishReason::Length), "{done:?}");
    done
}

/// Tokens after the first over the time of the decode loops, per second.
fn rate(done: &[Done]) -> f64 {
    let tokens: u32 = done.iter().map(|done| done.usage.completion - 1).sum();
    f64::from(tokens) / done.iter().map(|done| done.timings.decode.as_secs_f64()).sum::<f64>()
}

fn report(name: &str, decode: f64, accepted: f64) {
    let line = json!({
        "bench": format!("nano/decode/{name}"),
        "threads": 1,
        "ar_decode_tokens_per_second": decode.round(),
        "accepted_drafts_per_verify": (accepted * 100.0).round() / 100.0,
    });
    println!("{line}");
}
