//! Measures the engine under load: aggregate tokens a second at 1, 8 and 32 sequences, drafting
//! always, never and by the engine's choice, and on muse-nano the accepted lengths by kind of text.
//! `load [--model PATH [--draft PATH]] [--tokens N]`; without a model it takes muse-nano.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use muse_core::contract::{Drafter, KvType, SeqId, Target, Token, Usage, WeightSource};
use muse_core::engine::{EngineOptions, Loop};
use muse_core::model::{Model, ModelOptions};
use muse_core::sampler::mix;
use muse_cpu::{Cpu, CpuOptions};
use muse_dflash::{Dflash, DflashOptions};
use muse_kv::{Pool, PoolOptions};
use muse_testkit::nano_dir;
use muse_tests::chats::{STOP, chats};
use muse_tests::sim::{Ask, Client, client};
use muse_weights::Checkpoint;

/// Sequences that run together.
const TOGETHER: [usize; 3] = [1, 8, 32];
const PROMPT: usize = 16;
const PAGES_EACH: usize = 12;

fn main() -> Result<()> {
    let (mut model, mut draft, mut tokens) = (None, None, 64);
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next().with_context(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--model" => model = Some(PathBuf::from(value)),
            "--draft" => draft = Some(PathBuf::from(value)),
            "--tokens" => tokens = value.parse().context("--tokens needs a number")?,
            _ => bail!("{flag} is not known, expected --model, --draft and --tokens"),
        }
    }
    let nano = model.is_none();
    let model = model.unwrap_or_else(|| nano_dir().join("target"));
    let draft = draft.or_else(|| nano.then(|| nano_dir().join("assistant")));
    let mut engine = engine(&model, draft.as_deref())?;
    let mut next = 0;
    throughput(&mut engine, &mut next, tokens)?;
    if draft.is_some() && nano {
        choices(&mut engine, &mut next)?;
        kinds(&mut engine, &mut next)?;
    }
    Ok(())
}

fn engine(target: &Path, drafter: Option<&Path>) -> Result<Loop<Cpu>> {
    let backend = Arc::new(Cpu::new(CpuOptions { threads: None })?);
    let target = Checkpoint::open(target)?;
    let drafter = drafter.map(Checkpoint::open).transpose()?;
    let spec = target.spec().text.clone().context("no text model")?;
    let most = TOGETHER[2];
    let block = drafter.as_ref().and_then(|d| d.spec().drafter.as_ref()).map_or(1, |d| d.block);
    let reach = drafter.as_ref().and_then(|d| d.spec().drafter.as_ref()).map_or(0, |d| d.reach);
    let sliding = spec.layers.iter().filter_map(|layer| layer.window).max().unwrap_or(1);
    let rows = 512;
    let pages = most * PAGES_EACH + 32;
    let pool = PoolOptions {
        full_pages: pages,
        window_pages: pages,
        reach: reach.max(sliding - 1),
        block: rows,
    };
    let options = DflashOptions {
        kv: KvType::Bf16,
        window_pages: pages,
        max_anchors: most,
        max_rows: rows as usize,
    };
    let drafter = drafter
        .map(|source| Dflash::new(backend.clone(), &source, &spec, &options, &mut |_, _| {}))
        .transpose()?;
    let options = ModelOptions {
        kv: KvType::Bf16,
        full_pages: pages,
        window_pages: pages,
        max_rows: rows as usize,
        max_scores: most * block,
        taps: drafter.as_ref().map_or(Vec::new(), |d| d.layers().to_vec()),
    };
    let model = Model::new(backend.clone(), &target, &options, &mut |_, _| {})?;
    println!("{} layers of width {}, limits {:?}", spec.layers.len(), spec.hidden, model.limits());
    let drafter = drafter.map(|drafter| Box::new(drafter) as Box<dyn Drafter<Cpu>>);
    let options = EngineOptions { max_active: most, ..EngineOptions::default() };
    Ok(Loop::new(backend, Box::new(model), drafter, Box::new(Pool::new(pool)), &options)?)
}

/// Runs requests to their end. Returns how long all took and what each took.
fn run(engine: &mut Loop<Cpu>, next: &mut u64, asks: &[Ask]) -> Result<(Duration, Vec<Usage>)> {
    let clock = Instant::now();
    let vocab = engine.limits().vocab;
    let mut clients: Vec<Client> = Vec::new();
    for ask in asks {
        let (client, sink) = client(None);
        engine.submit(SeqId(*next), ask.request(vocab), sink, clock.elapsed())?;
        *next += 1;
        clients.push(client);
    }
    while engine.step(&|| clock.elapsed())? {}
    let took = clock.elapsed();
    let usage = |client: &Client| client.lock().expect("no panic").done[0].usage.clone();
    Ok((took, clients.iter().map(usage).collect()))
}

fn said(usages: &[Usage]) -> u32 {
    usages.iter().map(|usage| usage.completion).sum()
}

fn throughput(engine: &mut Loop<Cpu>, next: &mut u64, tokens: u32) -> Result<()> {
    let vocab = engine.limits().vocab as u64;
    let mut single = 0.0;
    for together in TOGETHER {
        let ask = |i: usize| {
            let token = |p| Token((mix(i as u64 + 1, p) % vocab) as u32);
            let prompt = (0..PROMPT as u64).map(token).collect();
            Ask { max_draft: Some(0), ..Ask::greedy(prompt, tokens) }
        };
        let asks: Vec<Ask> = (0..together).map(ask).collect();
        let (took, usages) = run(engine, next, &asks)?;
        let rate = f64::from(said(&usages)) / took.as_secs_f64();
        if together == 1 {
            single = rate;
        }
        println!("{together:2} sequences: {rate:8.1} tokens/s together, {:.2}x", rate / single);
    }
    Ok(())
}

/// Drafting by choice against always and never, on the golden chats one after the other.
fn choices(engine: &mut Loop<Cpu>, next: &mut u64) -> Result<()> {
    for (name, max_draft) in [("never", Some(0)), ("always", Some(15)), ("by choice", None)] {
        let (mut took, mut tokens, mut verifies, mut kept) = (Duration::ZERO, 0, 0, 0);
        for chat in &chats()[..18] {
            let ask =
                Ask { max_draft, stop: STOP.to_vec(), ..Ask::greedy(chat.prompt.clone(), 400) };
            let (time, usages) = run(engine, next, &[ask])?;
            took += time;
            tokens += said(&usages);
            verifies += usages[0].accepted.len();
            kept += usages[0].accepted.iter().sum::<u32>();
        }
        println!(
            "drafting {name}: {:.1} tokens/s, {verifies} verifies, {kept} guesses kept",
            f64::from(tokens) / took.as_secs_f64()
        );
    }
    Ok(())
}

/// Tokens a verify by kind of text, with whole blocks.
fn kinds(engine: &mut Loop<Cpu>, next: &mut u64) -> Result<()> {
    for (kind, names) in [
        ("prose", &["story", "who", "unknown"][..]),
        ("code", &["code", "code2"]),
        ("JSON", &["json"]),
    ] {
        let chats = chats();
        let asks: Vec<Ask> = chats
            .iter()
            .filter(|chat| names.contains(&chat.name.as_str()))
            .map(|chat| Ask {
                max_draft: Some(15),
                stop: STOP.to_vec(),
                ..Ask::greedy(chat.prompt.clone(), 400)
            })
            .collect();
        let (_, usages) = run(engine, next, &asks)?;
        let verifies: usize = usages.iter().map(|usage| usage.accepted.len()).sum();
        let kept: u32 = usages.iter().flat_map(|usage| &usage.accepted).sum();
        println!(
            "{kind}: {:.2} tokens a verify over {verifies} verifies",
            f64::from(kept) / verifies as f64 + 1.0
        );
    }
    Ok(())
}
