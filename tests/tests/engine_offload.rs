//! KV blocks that made way come back from a kv_offload, later and in another engine, and change no token.

use std::sync::Arc;
use std::time::Duration;

use muse_core::Result;
use muse_core::contract::{KvOffloadStore, KvType, PrefixHash, SeqId, Token};
use muse_core::engine::{EngineCore, EngineOptions};
use muse_core::hash::hash64;
use muse_cpu::Cpu;
use muse_kv::{Pool, PoolOptions};
use muse_testkit::fake::{FakeOffloadStore, FakeOptions};
use muse_tests::chats::chats;
use muse_tests::checkpoint::{Checkpoint, cpu};
use muse_tests::run::Pair;
use muse_tests::sim::{Received, Setup, TestEngine, TestRequest, client, plain};

fn words(seed: u64, count: usize) -> Vec<Token> {
    (0..count as u64).map(|i| Token((hash64(seed, i) % 61) as u32)).collect()
}

fn small(kv_offload: Arc<dyn KvOffloadStore>) -> Setup {
    let fake = FakeOptions { full_blocks: 9, window_blocks: 9, ..FakeOptions::default() };
    let options =
        EngineOptions { kv_offload: Some(kv_offload), ..Setup::with_ample_blocks().options };
    Setup { fake, options, ..Setup::with_ample_blocks() }
}

fn answer(engine: &mut TestEngine, id: u64, request: &TestRequest) -> Received {
    let (client, sink) = client(None);
    engine.core.submit(SeqId(id), request.request(61), sink, Duration::ZERO).expect("is taken");
    while engine.core.step(&|| Duration::ZERO).expect("no fault") {}
    assert_eq!(engine.core.pool().free(), engine.core.pool().total());
    assert_eq!(engine.log.stale.load(std::sync::atomic::Ordering::Relaxed), 0);
    client.lock().expect("no client panics").clone()
}

#[test]
fn evicted_blocks_are_restored_from_the_offload_store() {
    let kv_offload = Arc::new(FakeOffloadStore::new(0));
    let setup = small(kv_offload.clone());
    let mut engine = setup.build().expect("fits");
    for (id, seed) in [1, 2, 1, 3, 2, 1].into_iter().enumerate() {
        let request = TestRequest::greedy(words(seed, 400), 30);
        let received = answer(&mut engine, id as u64, &request);
        assert_eq!(received.tokens, plain(setup.fake, &request), "request {id}");
        // Six complete KV blocks of the prompt; each prompt pushes the others out.
        let cached = if id == 0 || id == 1 || id == 3 { 0 } else { 384 };
        assert_eq!(received.done[0].usage.cached, cached, "request {id}");
    }
    assert!(kv_offload.found() >= 12, "{} blocks were found", kv_offload.found());
}

#[test]
fn another_engine_finds_what_one_left() {
    let kv_offload = Arc::new(FakeOffloadStore::new(0));
    let setup = small(kv_offload.clone());
    let request = TestRequest::greedy(words(5, 300), 20);
    let mut first = setup.build().expect("fits");
    assert_eq!(answer(&mut first, 1, &request).done[0].usage.cached, 0);
    first.core.offload_all().expect("no fault");
    drop(first);
    let mut second = setup.build().expect("fits");
    let received = answer(&mut second, 1, &request);
    assert_eq!(received.tokens, plain(setup.fake, &request));
    assert_eq!(received.done[0].usage.cached, 256);
}

#[test]
fn loading_keeps_nobody_waiting() {
    let kv_offload = Arc::new(FakeOffloadStore::new(0));
    let fake = FakeOptions { full_blocks: 60, window_blocks: 60, ..FakeOptions::default() };
    let options = EngineOptions {
        kv_offload: Some(kv_offload.clone()),
        ..Setup::with_ample_blocks().options
    };
    let setup = Setup { fake, options, drafter: None, ..Setup::with_ample_blocks() };
    let long = TestRequest::greedy(words(5, 1500), 1);
    let mut first = setup.build().expect("fits");
    answer(&mut first, 1, &long);
    first.core.offload_all().expect("no fault");
    let mut second = setup.build().expect("fits");
    let talk = TestRequest::greedy(words(6, 5), 30);
    let (talker, sink) = client(None);
    second.core.submit(SeqId(1), talk.request(61), sink, Duration::ZERO).expect("is taken");
    second.core.step(&|| Duration::ZERO).expect("no fault");
    let (reader, sink) = client(None);
    second.core.submit(SeqId(2), long.request(61), sink, Duration::ZERO).expect("is taken");
    let (newcomer, sink) = client(None);
    let short = TestRequest::greedy(words(7, 5), 2);
    second.core.submit(SeqId(3), short.request(61), sink, Duration::ZERO).expect("is taken");
    for step in 2..30 {
        let before = kv_offload.found();
        second.core.step(&|| Duration::ZERO).expect("no fault");
        assert!(kv_offload.found() <= before + 8, "a few blocks a step");
        assert_eq!(talker.lock().expect("no panic").tokens.len(), step, "a token a step");
        if step == 3 {
            // It came later than the one whose KV blocks are still loaded.
            assert_eq!(newcomer.lock().expect("no panic").tokens, plain(fake, &short));
            assert!(reader.lock().expect("no panic").tokens.is_empty(), "16 of 23 blocks");
        }
    }
    let reader = reader.lock().expect("no panic");
    assert_eq!(reader.done[0].usage.cached, 1472, "all 23 complete blocks");
    assert_eq!(reader.tokens, plain(fake, &long));
}

/// Finds KV blocks of another length than this model's.
struct Foreign;

impl KvOffloadStore for Foreign {
    fn root(&self) -> PrefixHash {
        PrefixHash::default()
    }

    fn put(&self, _: PrefixHash, _: &[u8]) {}

    fn flush(&self) {}

    fn get(&self, _: PrefixHash, out: &mut Vec<u8>) -> bool {
        *out = vec![1; 100];
        true
    }
}

#[test]
fn blocks_of_another_length_are_left_alone() {
    let setup = small(Arc::new(Foreign));
    let request = TestRequest::greedy(words(6, 200), 20);
    let received = answer(&mut setup.build().expect("fits"), 1, &request);
    assert_eq!((received.done[0].usage.cached, received.tokens), (0, plain(setup.fake, &request)));
}

/// The trained model with its drafter on a kv_offload.
fn nano(kv_offload: Arc<dyn KvOffloadStore>) -> Result<EngineCore<Cpu>> {
    let nano = Checkpoint::nano()?;
    let mut pair = Pair::new(cpu(), &*nano.target, Some(&*nano.drafter), KvType::Bf16, &[])?;
    pair.pool =
        Pool::new(PoolOptions { offload_root: Some(kv_offload.root()), ..pair.pool.options() });
    pair.into_engine(&EngineOptions { kv_offload: Some(kv_offload), ..EngineOptions::default() })
}

#[test]
fn the_trained_model_goes_on_where_another_run_stopped() -> Result<()> {
    let kv_offload: Arc<dyn KvOffloadStore> = Arc::new(FakeOffloadStore::new(0));
    let chats = chats();
    let prompt: Vec<Token> =
        chats[..6].iter().flat_map(|chat| [&chat.prompt, &chat.ids]).flatten().copied().collect();
    let request = TestRequest { logprobs: Some(1), ..TestRequest::greedy(prompt.clone(), 30) };
    let run = || -> Result<Received> {
        let mut engine = nano(Arc::clone(&kv_offload))?;
        let (client, sink) = client(None);
        let vocab = engine.limits().vocab;
        engine.submit(SeqId(1), request.request(vocab), sink, Duration::ZERO)?;
        while engine.step(&|| Duration::ZERO)? {}
        engine.offload_all()?;
        Ok(client.lock().expect("no client panics").clone())
    };
    let (first, second) = (run()?, run()?);
    let usage = |received: &Received| received.done[0].usage.clone();
    assert_eq!(usage(&first).cached, 0);
    assert_eq!(usage(&second).cached as usize, (prompt.len() - 1) / 64 * 64);
    // Bit for bit, and the drafter drafts as it did: its rows came back too.
    assert_eq!(second.tokens, first.tokens);
    assert_eq!(usage(&second).verifies, usage(&first).verifies);
    Ok(())
}
