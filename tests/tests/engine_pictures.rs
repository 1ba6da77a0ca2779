//! Pictures in prompts: encoded beside decoding, once for a prefix, and given up with their request.

use std::sync::atomic::Ordering;
use std::time::Duration;

use muse_core::contract::{FinishReason, SeqId, Token};
use muse_core::engine::EngineOptions;
use muse_core::hash::hash64;
use muse_testkit::fake::{FakeCost, FakeOptions};
use muse_tests::sim::{Client, Received, Setup, TestEngine, TestRequest, client, plain};

fn words(seed: u64, count: usize) -> Vec<Token> {
    (0..count as u64).map(|i| Token((hash64(seed, i) % 61) as u32)).collect()
}

/// A prompt of 90 tokens with a picture of 300 rows behind the first 20.
fn with_picture(seed: u64, number: u64) -> TestRequest {
    TestRequest { picture: Some((20, number, 300)), ..TestRequest::greedy(words(seed, 90), 30) }
}

fn submit(engine: &mut TestEngine, id: u64, request: &TestRequest) -> Client {
    let (client, sink) = client(None);
    let now = engine.model.elapsed();
    engine.core.submit(SeqId(id), request.request(61), sink, now).expect("is taken");
    client
}

fn step(engine: &mut TestEngine) -> bool {
    let model = engine.model.clone();
    engine.core.step(&|| model.elapsed()).expect("no fault")
}

fn received(client: &Client) -> Received {
    client.lock().expect("no panic").clone()
}

#[test]
fn chunks_that_begin_and_end_in_a_picture_give_the_same_tokens() {
    let request = with_picture(1, 1);
    let expected = plain(Setup::with_ample_blocks().fake, &request);
    for prefill_chunk in [1, 7, 64, 1000] {
        for max_draft in [Some(0), None] {
            let options = EngineOptions { prefill_chunk, ..EngineOptions::default() };
            let mut engine = Setup { options, ..Setup::with_ample_blocks() }.build().expect("fits");
            let request = TestRequest { max_draft, ..request.clone() };
            let client = submit(&mut engine, 1, &request);
            while step(&mut engine) {}
            assert_eq!(received(&client).tokens, expected, "{prefill_chunk} {max_draft:?}");
            assert_eq!(received(&client).done[0].usage.prompt, 390);
        }
    }
}

#[test]
fn a_cached_picture_is_not_encoded_again_and_another_shares_nothing() {
    let mut engine = Setup::with_ample_blocks().build().expect("fits");
    let begun = |engine: &TestEngine| engine.encoded.begun.load(Ordering::Relaxed);
    let run = |engine: &mut TestEngine, id, request: &TestRequest| {
        let client = submit(engine, id, request);
        while step(engine) {}
        assert_eq!(received(&client).tokens, plain(Setup::with_ample_blocks().fake, request));
        received(&client).done[0].usage.cached
    };
    assert_eq!(run(&mut engine, 1, &with_picture(1, 1)), 0);
    assert_eq!(begun(&engine), 1);
    // All but the last token, which always runs.
    assert_eq!(run(&mut engine, 2, &with_picture(1, 1)), 389);
    assert_eq!(begun(&engine), 1, "a cached picture");
    assert_eq!(run(&mut engine, 3, &with_picture(1, 2)), 20);
    assert_eq!(begun(&engine), 2, "another picture");
}

#[test]
fn encoding_leaves_others_their_pace_and_blocks_nobody() {
    // A row takes 1 ms in a pass and in a slice: the picture 0.9 s in all.
    let cost = FakeCost { pass: |rows| 500 + 1000 * rows as u64, draft: |_| 0 };
    let fake = FakeOptions { cost, full_blocks: 200, window_blocks: 200, ..FakeOptions::default() };
    let setup = Setup {
        fake,
        drafter: None,
        options: EngineOptions::default(),
        ..Setup::with_ample_blocks()
    };
    let mut engine = setup.build().expect("fits");
    let talker = submit(&mut engine, 1, &TestRequest::greedy(words(1, 2), 400));
    (0..6).for_each(|_| assert!(step(&mut engine)));
    let picture = submit(&mut engine, 2, &with_picture(2, 1));
    let behind = submit(&mut engine, 3, &TestRequest::greedy(words(3, 40), 3));
    let mut slowest = Duration::ZERO;
    while received(&picture).done.is_empty() {
        let before = engine.model.elapsed();
        assert!(step(&mut engine), "the talker is not done");
        slowest = slowest.max(engine.model.elapsed() - before);
        let first = received(&picture).tokens.len();
        assert!(first == 0 || !received(&behind).done.is_empty(), "it waited for the picture");
    }
    assert!(slowest <= Duration::from_millis(60), "{slowest:?} where 50 ms are the target");
    assert!(!received(&talker).tokens.is_empty());
    assert_eq!(received(&picture).tokens, plain(fake, &with_picture(2, 1)));
}

#[test]
fn a_request_that_ends_while_its_picture_is_encoded_gives_it_up() {
    let mut engine = Setup::with_ample_blocks().build().expect("fits");
    let open = |engine: &TestEngine| engine.encoded.open.load(Ordering::Relaxed);
    let client = submit(&mut engine, 1, &with_picture(1, 1));
    assert!(step(&mut engine));
    assert_eq!(open(&engine), 1, "it has begun");
    engine.core.cancel(SeqId(1));
    assert!(!step(&mut engine));
    assert!(matches!(received(&client).done[0].reason, FinishReason::Cancelled));
    assert_eq!((open(&engine), engine.encoded.cancelled.load(Ordering::Relaxed)), (0, 1));
    assert_eq!(engine.core.pool().free(), engine.core.pool().total());
}
