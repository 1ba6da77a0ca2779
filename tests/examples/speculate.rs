//! Plain and speculative decoding of the embedded checkpoint: the same tokens in fewer passes.
//! Also how the crates fit together: `cargo run --release -p muse-tests --example speculate`.

use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};

use muse_core::Result;
use muse_core::contract::{
    BlockCount, Drafter, Engine, Event, Footprint, KvType, ModelSizes, Request, Sampling, Segment,
    TargetModel, Token, WeightSource,
};
use muse_core::engine::{EngineHandle, EngineOptions, spawn};
use muse_core::model::{Model, ModelFootprint};
use muse_cpu::{Cpu, CpuOptions};
use muse_dflash::Dflash;
use muse_kv::{Pool, PoolOptions};
use muse_testkit::nano_dir;
use muse_tests::chats::{STOP, chats};
use muse_weights::Checkpoint;

const SIZES: ModelSizes = ModelSizes {
    kv: KvType::Bf16,
    blocks: BlockCount { full: 64, window: 64 },
    max_num_seqs: 1,
    max_num_batched_tokens: 256,
    max_logits_rows: 256,
};

fn main() -> Result<()> {
    let prompt = &chats()[0].prompt;
    for with_drafter in [false, true] {
        let (tokens, accepted) = generate(&start(with_drafter)?, prompt)?;
        let passes = if with_drafter { accepted.len() } else { tokens.len() };
        println!("drafter: {with_drafter}, {} tokens in {passes} passes", tokens.len());
        println!("  accepted draft tokens of each verify: {accepted:?}");
        println!("  {:?}", tokens.iter().map(|token| token.0).collect::<Vec<_>>());
    }
    Ok(())
}

/// Loads the model, with its drafter if asked, and starts an engine.
fn start(with_drafter: bool) -> Result<EngineHandle> {
    let backend = Arc::new(Cpu::new(CpuOptions { threads: None })?);
    let quiet = &mut |_, _| {};
    let target = Checkpoint::open(&nano_dir().join("target"))?;
    let source = Checkpoint::open(&nano_dir().join("assistant"))?;
    let spec = source.spec().drafter.as_ref().filter(|_| with_drafter);
    let captured_layers = spec.map_or(Vec::new(), |spec| spec.target_layers.clone());
    let model = Model::new(Arc::clone(&backend), &target, &SIZES, &captured_layers, quiet)?;
    let drafter = match spec {
        Some(_) => {
            let drafter = Dflash::new(Arc::clone(&backend), &source, model.spec(), &SIZES, quiet);
            Some(Box::new(drafter?) as Box<dyn Drafter<Cpu>>)
        }
        None => None,
    };
    let footprint = ModelFootprint { spec: model.spec(), captured_layers: captured_layers.len() };
    let pool = Pool::new(PoolOptions {
        blocks: SIZES.blocks,
        window_reach: footprint.window_reach().max(spec.map_or(0, |spec| spec.reach)),
        max_step_tokens: SIZES.max_num_batched_tokens as u32,
        ..PoolOptions::default()
    });
    let options = EngineOptions {
        max_num_seqs: SIZES.max_num_seqs,
        max_num_batched_tokens: SIZES.max_num_batched_tokens,
        prefill_chunk: SIZES.max_num_batched_tokens,
        // Fixed draft lengths: the same passes on every machine.
        adapt_draft: false,
        ..EngineOptions::default()
    };
    spawn(backend, Box::new(model), drafter, None, Box::new(pool), options)
}

/// The completion of a prompt, and the accepted draft tokens of each verify.
fn generate(engine: &EngineHandle, prompt: &[Token]) -> Result<(Vec<Token>, Vec<u32>)> {
    let request = Request {
        prompt: vec![Segment::Tokens(prompt.to_vec())],
        sampling: Sampling::default(),
        stop: STOP.to_vec(),
        max_tokens: Some(200),
        max_draft: None,
        logprobs: None,
        constraint: None,
        deadline: None,
        ..Request::default()
    };
    let (sender, events) = mpsc::channel();
    let sink = Box::new(move |event| match sender.send(event) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    });
    engine.submit(request, sink)?;
    let mut tokens = Vec::new();
    for event in events {
        match event {
            Event::Token(sampled) => tokens.push(sampled.token),
            Event::Done(done) => return Ok((tokens, done.usage.accepted_by_verify().collect())),
            Event::Prefill { .. } => {}
        }
    }
    unreachable!("the engine ends every request with `Event::Done`")
}
