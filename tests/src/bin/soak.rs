//! Keeps the engine busy with requests that come, go and are cancelled, and looks at its memory:
//! `soak [--minutes N] [--seed S]`. Ends badly when memory grew after the first minute, a KV block did
//! not come back, or a request had not exactly one end.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use muse_core::contract::{Event, KvType, Sampling, SeqId, Token};
use muse_core::engine::{EngineCore, EngineOptions};
use muse_core::hash::hash64;
use muse_cpu::Cpu;
use muse_tests::chats::{STOP, chats};
use muse_tests::checkpoint::{Checkpoint, cpu};
use muse_tests::run::Pair;
use muse_tests::sim::TestRequest;

/// Resident memory may move by so much: the allocator's rounding, not a leak.
const SLACK_KIB: u64 = 2048;
/// Requests that wait or run.
const MOST: usize = 40;

/// Ends and tokens received by all clients.
#[derive(Default)]
struct Received {
    ends: AtomicU64,
    tokens: AtomicU64,
}

fn main() -> Result<ExitCode> {
    let (mut minutes, mut seed) = (20, 1);
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next().with_context(|| format!("{flag} needs a number"))?;
        let target = match flag.as_str() {
            "--minutes" => &mut minutes,
            "--seed" => &mut seed,
            _ => bail!("{flag} is not known, expected --minutes N and --seed S"),
        };
        *target = value.parse().with_context(|| format!("{flag} {value} is not a number"))?;
    }
    let nano = Checkpoint::nano()?;
    let pair = Pair::new(cpu(), &*nano.target, Some(&*nano.drafter), KvType::Bf16, &[])?;
    let mut engine = pair.into_engine(&EngineOptions::default())?;
    let received = Arc::new(Received::default());
    let (submitted, first, last) = keep_busy(&mut engine, &received, minutes, seed)?;
    let (free, total) = (engine.pool().free(), engine.pool().total());
    let ends = received.ends.load(Ordering::Relaxed);
    println!(
        "{submitted} requests, {ends} ends, {} tokens; {first} KiB resident after a minute, {last} \
         at the end; {free:?} of {total:?} are free",
        received.tokens.load(Ordering::Relaxed)
    );
    let kept = ends == submitted && free == total && last <= first + SLACK_KIB;
    println!("{}", if kept { "passed" } else { "failed" });
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the requests, and the resident memory after the first minute and at the end, in KiB.
fn keep_busy(
    engine: &mut EngineCore<Cpu>,
    received: &Arc<Received>,
    minutes: u64,
    seed: u64,
) -> Result<(u64, u64, u64)> {
    let (clock, end) = (Instant::now(), Duration::from_secs(60 * minutes));
    let (mut submitted, mut first, mut step) = (0, None, 0);
    let prompts: Vec<Vec<Token>> = chats().into_iter().map(|chat| chat.prompt).collect();
    let vocab = engine.limits().vocab;
    while clock.elapsed() < end {
        step += 1;
        let random = |salt: u64, n: u64| hash64(hash64(seed, step), salt) % n;
        let (waiting, active) = engine.load();
        if waiting + active < MOST && random(1, 3) == 0 {
            submitted += 1;
            let request = request(&prompts, &random);
            let ear = Arc::clone(received);
            let sink = move |event| {
                match event {
                    Event::Done(_) => ear.ends.fetch_add(1, Ordering::Relaxed),
                    Event::Token(_) => ear.tokens.fetch_add(1, Ordering::Relaxed),
                    Event::Prefill { .. } => 0,
                };
                ControlFlow::Continue(())
            };
            engine.submit(
                SeqId(submitted),
                request.request(vocab),
                Box::new(sink),
                clock.elapsed(),
            )?;
        }
        if random(2, 12) == 0 {
            engine.cancel(SeqId(submitted - random(3, MOST as u64).min(submitted)));
        }
        engine.step(&|| clock.elapsed())?;
        if first.is_none() && clock.elapsed() > Duration::from_secs(60) {
            first = Some(resident()?);
        }
    }
    while engine.step(&|| clock.elapsed())? {}
    let last = resident()?;
    Ok((submitted, first.unwrap_or(last), last))
}

fn request(prompts: &[Vec<Token>], random: &dyn Fn(u64, u64) -> u64) -> TestRequest {
    let mut prompt = prompts[random(4, prompts.len() as u64) as usize].clone();
    if random(5, 4) == 0 {
        // Nobody has asked this before.
        prompt.extend((0..random(6, 600)).map(|i| Token((random(7 + i, 890)) as u32)));
    }
    let temperature = [0.0, 0.8, 1.3][random(8, 3) as usize];
    let sampling = Sampling { temperature, seed: random(9, 1000), ..Sampling::default() };
    TestRequest {
        sampling,
        stop: STOP.to_vec(),
        deadline_ms: (random(10, 10) == 0).then(|| random(11, 500)),
        ..TestRequest::greedy(prompt, 1 + random(12, 200) as u32)
    }
}

/// Resident memory in KiB.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let value = line.and_then(|line| line.trim().strip_suffix("kB")).context("no VmRSS")?;
    Ok(value.trim().parse()?)
}
