//! A step allocates nothing once it is warm, and what models allocate before is as planned.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use muse_core::contract::{
    BlockCount, Event, Footprint, KvType, ModelSizes, Sampling, SeqId, Token,
};
use muse_core::engine::{EngineCore, EngineOptions};
use muse_core::model::{Model, ModelFootprint};
use muse_dflash::{Dflash, DflashFootprint};
use muse_tests::checkpoint::{Checkpoint, cpu};
use muse_tests::run::Pair;
use muse_tests::sim::{Setup, TestRequest};

/// Steps several sequences and counts what their decode steps allocate.
fn allocations(setup: &Setup, change: impl Fn(&mut TestRequest)) -> (u64, u64) {
    let mut engine = setup.build().expect("fits");
    let tokens = Arc::new(AtomicU64::new(0));
    for i in 0..4 {
        let mut request = TestRequest::greedy((0..100 + i).map(|t| Token(t % 61)).collect(), 600);
        change(&mut request);
        let count = Arc::clone(&tokens);
        let sink = move |event| {
            count.fetch_add(u64::from(matches!(event, Event::Token(_))), Ordering::Relaxed);
            ControlFlow::Continue(())
        };
        engine
            .core
            .submit(SeqId(u64::from(i)), request.request(61), Box::new(sink), Duration::ZERO)
            .expect("is taken");
    }
    let step = |engine: &mut muse_tests::sim::TestEngine| {
        assert!(engine.core.step(&|| Duration::ZERO).expect("no fault"), "still running");
    };
    (0..40).for_each(|_| step(&mut engine));
    let before = tokens.load(Ordering::Relaxed);
    let info = allocation_counter::measure(|| (0..60).for_each(|_| step(&mut engine)));
    (info.count_total, tokens.load(Ordering::Relaxed) - before)
}

#[test]
fn greedy_steps_allocate_nothing() {
    let plain = Setup { drafter: None, ..Setup::with_ample_blocks() };
    let (count, tokens) = allocations(&plain, |_| {});
    assert_eq!((count, tokens), (0, 240));
}

#[test]
fn drafted_and_sampled_steps_allocate_nothing() {
    let (count, tokens) = allocations(&Setup::with_ample_blocks(), |request| {
        request.sampling = Sampling {
            temperature: 0.8,
            top_k: 20,
            top_p: 0.9,
            min_p: 0.01,
            repetition_penalty: 1.1,
            frequency_penalty: 0.1,
            ..Sampling::default()
        };
    });
    assert_eq!(count, 0);
    assert!(tokens > 260, "drafts are kept: {tokens} tokens");
}

#[test]
fn steps_of_the_real_models_allocate_nothing() -> muse_core::Result<()> {
    let nano = Checkpoint::nano()?;
    let pair = Pair::new(cpu(), &*nano.target, Some(&*nano.drafter), KvType::Bf16, &[])?;
    let drafter = pair.drafter.map(|drafter| Box::new(drafter) as Box<_>);
    let options = EngineOptions { prefill_chunk: 64, ..EngineOptions::default() };
    let (target, pool) = (Box::new(pair.target), Box::new(pair.pool));
    let mut engine = EngineCore::new(pair.backend, target, drafter, pool, &options)?;
    let vocab = engine.limits().vocab;
    for i in 0..2 {
        let request = TestRequest::greedy((0..50 + i).map(|t| Token(7 * t)).collect(), 500);
        let sink = Box::new(|_| ControlFlow::Continue(()));
        engine.submit(SeqId(u64::from(i)), request.request(vocab), sink, Duration::ZERO)?;
    }
    let mut step = || assert!(engine.step(&|| Duration::ZERO).expect("no fault"), "still running");
    (0..12).for_each(|_| step());
    let info = allocation_counter::measure(|| (0..15).for_each(|_| step()));
    assert_eq!(info.count_total, 0);
    Ok(())
}

/// Bytes that stay allocated.
fn kept<T>(make: impl FnOnce() -> T) -> (T, usize) {
    let mut made = None;
    let info = allocation_counter::measure(|| made = Some(make()));
    (made.expect("measured"), info.bytes_current as usize)
}

#[test]
fn buffers_take_what_is_planned_for_them() -> muse_core::Result<()> {
    let nano = Checkpoint::nano()?;
    let spec = nano.target.spec().text.clone().expect("a text model");
    let draft = nano.drafter.spec().drafter.clone().expect("a drafter");
    let backend = Arc::new(cpu());
    let measure = |rows: usize, most: usize| -> muse_core::Result<(usize, usize)> {
        let sizes = ModelSizes {
            kv: KvType::Bf16,
            blocks: BlockCount { full: 4, window: 4 },
            max_num_seqs: most,
            max_num_batched_tokens: rows,
            max_logits_rows: most * draft.draft_block,
        };
        let (quiet, captured) = (&mut |_, _| {}, &draft.target_layers);
        let load = || Model::new(backend.clone(), &*nano.target, &sizes, captured, quiet);
        let (model, bytes) = kept(load);
        drop(model?);
        let load = || Dflash::new(backend.clone(), &*nano.drafter, &spec, &sizes, quiet);
        let (drafter, more) = kept(load);
        drop(drafter?);
        let model = ModelFootprint { spec: &spec, captured_layers: captured.len() };
        let drafter = DflashFootprint { spec: &draft, vocab: spec.vocab };
        let planned = model.scratch_bytes(&sizes) + drafter.scratch_bytes(&sizes);
        Ok((bytes + more, planned))
    };
    // Weights and KV blocks are the same: the difference is that of the buffers.
    let ((few, few_planned), (many, many_planned)) = (measure(64, 1)?, measure(700, 9)?);
    let (took, planned) = (many - few, many_planned - few_planned);
    // Numbers of rows and of tokens come to a hundredth of them.
    assert!(took >= planned && took < planned + planned / 100, "{took} bytes, {planned} planned");
    Ok(())
}
