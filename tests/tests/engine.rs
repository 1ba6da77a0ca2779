//! The engine on fakes, one property at a time.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use muse_core::Error;
use muse_core::contract::{
    Constraint, ContentHash, FinishReason, Patches, Rates, Sampling, Segment, SeqId, Token,
    TokenMask,
};
use muse_core::engine::{EngineCore, EngineOptions};
use muse_core::hash::hash64;
use muse_testkit::fake::FakeOptions;
use muse_tests::sim::{
    Client, Grammar, Parts, Received, Setup, TestEngine, TestRequest, client, ids, plain,
};

fn words(seed: u64, count: usize) -> Vec<Token> {
    (0..count as u64).map(|i| Token((hash64(seed, i) % 61) as u32)).collect()
}

fn sampled(prompt: Vec<Token>, max_tokens: u32, temperature: f32) -> TestRequest {
    let sampling = Sampling { temperature, seed: 5, top_p: 0.95, ..Sampling::default() };
    TestRequest { sampling, ..TestRequest::greedy(prompt, max_tokens) }
}

/// Submits under the next id.
fn submit(engine: &mut TestEngine, id: u64, request: &TestRequest) -> Client {
    let (client, sink) = client(None);
    let vocab = engine.core.limits().vocab;
    engine.core.submit(SeqId(id), request.request(vocab), sink, Duration::ZERO).expect("is taken");
    client
}

fn run(engine: &mut TestEngine) {
    while engine.core.step(&|| Duration::ZERO).expect("no fault") {}
    assert_eq!(engine.core.pool().free(), engine.core.pool().total());
    assert_eq!(
        engine.log.stale.load(Ordering::Relaxed),
        0,
        "the drafter's context has no stale positions"
    );
}

fn collect(client: &Client) -> Received {
    client.lock().expect("no client panics").clone()
}

fn alone(setup: &Setup, request: &TestRequest) -> Received {
    let mut engine = setup.build().expect("fits");
    let client = submit(&mut engine, 1, request);
    run(&mut engine);
    collect(&client)
}

fn reason(received: &Received) -> &FinishReason {
    let [done] = &received.done[..] else { panic!("{} ends", received.done.len()) };
    &done.reason
}

#[test]
fn draft_tokens_never_change_a_token() {
    let mut accepted = 0;
    for len in [1, 2, 63, 64, 65, 90, 91, 127, 128, 129, 200, 333, 400] {
        let hit = [0.0, 0.6, 1.0][len % 3];
        let setup = Setup { drafter: Some((15, 64, hit)), ..Setup::with_ample_blocks() };
        for temperature in [0.0, 0.8, 1.5] {
            let request = sampled(words(len as u64, len), 70, temperature);
            let request = TestRequest { logprobs: Some(2), ..request };
            let expect = plain(setup.fake, &request);
            for width in 0..=15 {
                let received =
                    alone(&setup, &TestRequest { max_draft: Some(width), ..request.clone() });
                // Log-probabilities included, bit for bit.
                assert_eq!(received.tokens, expect, "{len} tokens, {width} drafts, {temperature}");
                let usage = &received.done[0].usage;
                assert!(usage.accepted_by_verify().all(|n| n <= width));
                assert_eq!(width == 0, usage.verifies.is_empty());
                accepted += usage.accepted();
            }
        }
    }
    assert!(accepted > 5_000, "drafts were kept: {accepted}");
}

#[test]
fn a_stop_inside_an_accepted_block_ends_there() {
    let setup = Setup { drafter: Some((7, 70, 1.0)), ..Setup::with_ample_blocks() };
    let request = TestRequest::greedy(words(1, 20), 40);
    let whole = ids(&plain(setup.fake, &request));
    for stop in &whole {
        let end = whole.iter().position(|token| token == stop).expect("it is one of them");
        let received =
            alone(&setup, &TestRequest { stop: vec![Token(60), *stop], ..request.clone() });
        let first = whole.iter().position(|t| *t == Token(60) || t == stop).expect("is there");
        assert!(first <= end);
        assert_eq!(ids(&received.tokens), whole[..=first]);
        assert!(matches!(reason(&received), FinishReason::Stop(token) if *token == whole[first]));
        let usage = &received.done[0].usage;
        assert_eq!(usage.completion as usize, first + 1);
        // Every token but the first is a kept draft or the one that a verify adds.
        let verifies = usage.verifies.len();
        let kept = usage.accepted();
        assert!((first..=first + 1).contains(&(kept as usize + verifies)) || verifies == 0);
    }
}

#[test]
fn stop_tokens_are_held_back_until_min_tokens() {
    let setup = Setup { drafter: Some((7, 70, 0.9)), ..Setup::with_ample_blocks() };
    let plain_setup = Setup { drafter: None, ..setup.clone() };
    let whole = ids(&plain(setup.fake, &TestRequest::greedy(words(4, 20), 40)));
    let mut held_back = 0;
    for temperature in [0.0, 1.0] {
        for min_tokens in [0, 1, 2, 9, 40] {
            // Every fourth token of the vocabulary is a stop token, and the first one generated.
            let stop = (0..61).step_by(4).map(Token).chain([whole[0]]).collect();
            let request = sampled(words(4, 20), 40, temperature);
            let request = TestRequest { stop, min_tokens, ..request };
            let expect = plain(setup.fake, &request);
            for setup in [&setup, &plain_setup] {
                let received = alone(setup, &request);
                assert_eq!(received.tokens, expect, "{min_tokens} tokens, {temperature}");
                let stops =
                    received.tokens.iter().filter(|t| request.stop.contains(&t.token)).count();
                assert_eq!(stops, usize::from(matches!(reason(&received), FinishReason::Stop(_))));
                assert!(received.tokens.len() >= min_tokens as usize);
            }
            held_back += usize::from(expect.len() > 1);
        }
    }
    assert!(held_back >= 6, "the stop tokens would have come: {held_back}");
    let request = TestRequest { min_tokens: 6, ..TestRequest::greedy(words(4, 20), 5) };
    let error = setup.build().expect("fits").core.limits().check(&request.request(61));
    let message = error.expect_err("more than max_tokens").to_string();
    assert!(message.contains("min_tokens is 6") && message.contains("is 5"), "{message}");
}

/// A client that leaves after any token gets the usage of the tokens it got, as if it had known
/// when to stop, however many the engine verified in that step.
#[test]
fn usage_counts_the_tokens_that_were_emitted() {
    let setup = Setup { drafter: Some((7, 70, 0.8)), ..Setup::with_ample_blocks() };
    let request = TestRequest { max_draft: Some(7), ..TestRequest::greedy(words(5, 20), 40) };
    let whole = alone(&setup, &request).done[0].usage.clone();
    assert!(whole.accepted() > 20, "{whole:?}");
    for leaves_after in 1..=40 {
        let mut engine = setup.build().expect("fits");
        let (client, sink) = client(Some(leaves_after));
        engine.core.submit(SeqId(1), request.request(61), sink, Duration::ZERO).expect("is taken");
        run(&mut engine);
        let usage = &collect(&client).done[0].usage;
        let mut expect = whole.clone();
        expect.truncate(leaves_after as u32);
        assert_eq!(usage.completion as usize, leaves_after);
        assert_eq!(usage, &expect, "after {leaves_after} tokens");
        // Every token is sampled behind the prompt, an accepted draft token, or sampled behind them.
        let sampled = leaves_after as u32 - usage.accepted();
        assert!((usage.verifies.len() as u32..=1 + usage.verifies.len() as u32).contains(&sampled));
    }
}

#[test]
fn max_tokens_inside_a_block_is_exact() {
    let setup = Setup { drafter: Some((7, 70, 1.0)), ..Setup::with_ample_blocks() };
    let whole = ids(&plain(setup.fake, &TestRequest::greedy(words(2, 20), 40)));
    for max in 1..=40 {
        let received = alone(&setup, &TestRequest::greedy(words(2, 20), max));
        assert_eq!(ids(&received.tokens), whole[..max as usize]);
        assert!(matches!(reason(&received), FinishReason::Length));
    }
}

#[test]
fn chunks_change_nothing() {
    let request = sampled(words(3, 230), 30, 0.7);
    let expect = plain(FakeOptions::default(), &request);
    for prefill_chunk in [1, 7, 64, 230] {
        let options = EngineOptions { prefill_chunk, ..EngineOptions::default() };
        let received = alone(&Setup { options, ..Setup::with_ample_blocks() }, &request);
        assert_eq!(received.tokens, expect, "chunks of {prefill_chunk}");
        let steps: Vec<u32> = received.prefill.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!((received.prefill[0], received.prefill.last()), (0, Some(&230)));
        assert!(steps.iter().all(|&rows| rows as usize <= prefill_chunk), "{steps:?}");
    }
}

#[test]
fn batch_composition_changes_nothing_and_prefixes_are_shared() {
    let setup = Setup::with_ample_blocks();
    let mut engine = setup.build().expect("fits");
    let requests: Vec<TestRequest> = (0..8)
        .map(|i| {
            let mut prompt = words(4, 150);
            prompt.extend(words(100 + i, i as usize + 1));
            sampled(prompt, 40, 0.5 + i as f32 / 10.0)
        })
        .collect();
    let first = submit(&mut engine, 0, &requests[0]);
    run(&mut engine);
    let clients: Vec<Client> =
        (0..8).map(|i| submit(&mut engine, 1 + i as u64, &requests[i])).collect();
    run(&mut engine);
    assert_eq!(collect(&first).tokens, collect(&clients[0]).tokens);
    for (request, client) in requests.iter().zip(&clients) {
        let received = collect(client);
        assert_eq!(received.tokens, plain(setup.fake, request));
        assert!(received.done[0].usage.cached >= 150, "{:?}", received.done[0].usage);
        assert_eq!(received.prefill[0], received.done[0].usage.cached);
    }
}

#[test]
fn a_preempted_sequence_resumes_and_emits_no_token_twice() {
    let fake = FakeOptions { full_blocks: 7, window_blocks: 14, ..FakeOptions::default() };
    let options = EngineOptions { prefill_chunk: 64, ..EngineOptions::default() };
    let setup = Setup { fake, options, ..Setup::with_ample_blocks() };
    let mut engine = setup.build().expect("fits");
    let requests: Vec<TestRequest> = (0..3)
        .map(|i| {
            let mut request = sampled(words(200 + i, 60), 150, 0.9);
            request.sampling.repetition_penalty = 1.2;
            request.sampling.frequency_penalty = 0.3;
            request
        })
        .collect();
    let clients: Vec<Client> = requests
        .iter()
        .enumerate()
        .map(|(i, request)| submit(&mut engine, i as u64, request))
        .collect();
    let mut preempted = false;
    let mut peak_active = 0;
    while engine.core.step(&|| Duration::ZERO).expect("no fault") {
        let (_, active) = engine.core.load();
        let ended = clients.iter().filter(|client| !collect(client).done.is_empty()).count();
        peak_active = peak_active.max(active);
        preempted |= active + ended < peak_active;
    }
    assert!(preempted, "7 blocks do not hold 3 sequences of 4");
    for (request, client) in requests.iter().zip(&clients) {
        assert_eq!(collect(client).tokens, plain(fake, request));
    }
}

#[test]
fn what_can_never_run_is_refused_with_the_numbers() {
    let options = EngineOptions { max_positions: 100, ..EngineOptions::default() };
    let setup = Setup { options, ..Setup::with_ample_blocks() };
    let Parts { backend, target, drafter, pool, .. } = setup.parts().expect("fits");
    // Without a vision encoder.
    let mut engine =
        EngineCore::new(backend, target, drafter, pool, &setup.options).expect("fits together");
    let mut refuse = |change: &dyn Fn(&mut muse_core::contract::Request)| -> Error {
        let mut request = TestRequest::greedy(words(1, 10), 5).request(61);
        change(&mut request);
        let (client, sink) = client(None);
        let error = engine.submit(SeqId(1), request, sink, Duration::ZERO).expect_err("no");
        assert!(collect(&client).done.is_empty(), "refused requests get no event");
        error
    };
    let invalid = |error: Error, parts: &[&str]| {
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        let message = error.to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    };
    invalid(refuse(&|r| r.prompt = vec![Segment::Tokens(words(1, 100))]), &["100", "shorten"]);
    invalid(refuse(&|r| r.prompt = vec![Segment::Tokens(Vec::new())]), &["empty"]);
    invalid(refuse(&|r| r.prompt = vec![Segment::Tokens(vec![Token(61)])]), &["61"]);
    invalid(refuse(&|r| r.max_tokens = Some(0)), &["max_tokens"]);
    invalid(refuse(&|r| r.sampling.top_p = 2.0), &["top_p", "2"]);
    let patches =
        Patches { values: [].into(), grid_t: 1, grid_h: 0, grid_w: 0, hash: ContentHash([0; 16]) };
    let error = refuse(&|r| r.prompt.push(Segment::Patches(patches.clone())));
    assert!(matches!(error, Error::Unsupported(_)), "{error:?}");
}

#[test]
fn max_tokens_is_bounded_by_the_positions_left() {
    let options = EngineOptions { max_positions: 100, ..EngineOptions::default() };
    let setup = Setup { options, ..Setup::with_ample_blocks() };
    let received = alone(&setup, &TestRequest::greedy(words(6, 80), 5000));
    assert_eq!(received.tokens.len(), 20);
    assert!(matches!(reason(&received), FinishReason::Length));
    // A small cache bounds it in the same way.
    let fake = FakeOptions { full_blocks: 2, ..FakeOptions::default() };
    let received = alone(
        &Setup { fake, ..Setup::with_ample_blocks() },
        &TestRequest::greedy(words(6, 80), 5000),
    );
    assert_eq!(received.tokens.len(), 128 - 80);
}

#[test]
fn a_cache_for_one_runs_the_longest_prompt() {
    // Fewer rows a pass than a chunk may have; KV blocks for just what they need.
    let fake = FakeOptions { rows: 16, window_blocks: 3, full_blocks: 6, ..FakeOptions::default() };
    let setup = Setup { fake, options: EngineOptions::default(), ..Setup::with_ample_blocks() };
    let request = TestRequest::greedy(words(6, 370), 14);
    let received = alone(&setup, &request);
    assert!(matches!(reason(&received), FinishReason::Length), "{:?}", reason(&received));
    assert_eq!(received.tokens, plain(fake, &request));
}

#[test]
fn grammars_hold_along_the_draft() {
    let fake = FakeOptions::default();
    let script = vec![Token(7), Token(33), Token(2)];
    for grammar in [Grammar::Even, Grammar::Forced(4, script.clone()), Grammar::Forced(0, script)] {
        for temperature in [0.0, 1.0] {
            let mut request = sampled(words(7, 50), 40, temperature);
            request.grammar = grammar.clone();
            let expect = plain(fake, &request);
            for drafter in [None, Some((7, 70, 0.9))] {
                let received = alone(&Setup { drafter, ..Setup::with_ample_blocks() }, &request);
                assert_eq!(received.tokens, expect, "{grammar:?}, drafter {drafter:?}");
            }
        }
    }
}

#[test]
fn forced_tokens_of_a_grammar_are_drafted() {
    let options = EngineOptions { max_draft: 8, ..EngineOptions::default() };
    let setup = Setup { drafter: None, options, ..Setup::with_ample_blocks() };
    let mut request = TestRequest::greedy(words(7, 50), 37);
    request.grammar = Grammar::Forced(0, vec![Token(7), Token(33)]);
    let usage = alone(&setup, &request).done[0].usage.clone();
    let accepted: Vec<u32> = usage.accepted_by_verify().collect();
    assert_eq!(accepted, [8, 8, 8, 8], "one token, then four blocks of nine");
    request.max_draft = Some(0);
    assert!(alone(&setup, &request).done[0].usage.verifies.is_empty());
}

/// Allows nothing after two tokens.
struct DeadEnd(usize);

impl Constraint for DeadEnd {
    fn mask(&mut self, out: &mut TokenMask) -> muse_core::Result<()> {
        out.words = vec![if self.0 < 2 { u32::MAX } else { 0 }; 2];
        Ok(())
    }
    fn accept(&mut self, _: Token) -> muse_core::Result<()> {
        self.0 += 1;
        Ok(())
    }
    fn rollback(&mut self, tokens: usize) -> muse_core::Result<()> {
        self.0 -= tokens;
        Ok(())
    }
    fn legal_prefix(&mut self, draft: &[Token]) -> muse_core::Result<usize> {
        Ok(draft.len().min(2usize.saturating_sub(self.0)))
    }
    fn forced(&mut self) -> muse_core::Result<Option<Token>> {
        Ok(None)
    }
}

#[test]
fn a_grammar_that_contradicts_itself_ends_its_request_alone() {
    let setup = Setup::with_ample_blocks();
    let mut engine = setup.build().expect("fits");
    let request = TestRequest::greedy(words(8, 30), 20);
    let (stuck, sink) = client(None);
    let mut constrained = request.request(61);
    constrained.constraint = Some(Box::new(DeadEnd(0)));
    engine.core.submit(SeqId(1), constrained, sink, Duration::ZERO).expect("is taken");
    let other = submit(&mut engine, 2, &request);
    run(&mut engine);
    assert_eq!(collect(&stuck).tokens.len(), 2);
    assert!(
        matches!(reason(&collect(&stuck)), FinishReason::Failed(Error::Invalid(m)) if m.contains("grammar"))
    );
    assert_eq!(collect(&other).tokens, plain(setup.fake, &request));
}

#[test]
fn cancel_deadline_and_departure_end_within_a_step() {
    let options = EngineOptions { prefill_chunk: 10, ..EngineOptions::default() };
    let setup = Setup { options, ..Setup::with_ample_blocks() };
    let mut engine = setup.build().expect("fits");
    let clock = Cell::new(Duration::ZERO);
    let request = TestRequest::greedy(words(9, 300), 200);
    let cancelled = submit(&mut engine, 1, &request);
    let late = submit(&mut engine, 2, &TestRequest { deadline_ms: Some(3), ..request.clone() });
    let (gone, sink) = client(Some(3));
    let request = TestRequest::greedy(words(10, 5), 200).request(61);
    engine.core.submit(SeqId(3), request, sink, Duration::ZERO).expect("is taken");
    for ms in 0..3 {
        clock.set(Duration::from_millis(ms));
        engine.core.step(&|| clock.get()).expect("no fault");
    }
    assert!(collect(&cancelled).done.is_empty() && collect(&late).done.is_empty());
    engine.core.cancel(SeqId(1));
    clock.set(Duration::from_millis(3));
    engine.core.step(&|| clock.get()).expect("no fault");
    assert!(matches!(reason(&collect(&cancelled)), FinishReason::Cancelled), "amid its prompt");
    assert!(matches!(reason(&collect(&late)), FinishReason::Deadline));
    assert!(collect(&late).tokens.is_empty());
    run(&mut engine);
    assert!(matches!(reason(&collect(&gone)), FinishReason::Cancelled));
    assert_eq!(collect(&gone).tokens.len(), 3, "no events after the client left");
    assert_eq!(collect(&gone).done[0].usage.completion, 3);
}

#[test]
fn the_higher_priority_is_scheduled_first() {
    let options = EngineOptions { max_num_seqs: 1, ..EngineOptions::default() };
    let mut engine = Setup { options, ..Setup::with_ample_blocks() }.build().expect("fits");
    let low = submit(
        &mut engine,
        1,
        &TestRequest { priority: -1, ..TestRequest::greedy(words(1, 5), 4) },
    );
    let old = submit(&mut engine, 2, &TestRequest::greedy(words(2, 5), 4));
    let young = submit(&mut engine, 3, &TestRequest::greedy(words(3, 5), 4));
    let mut order = Vec::new();
    while engine.core.step(&|| Duration::ZERO).expect("no fault") {
        for (name, client) in [("low", &low), ("old", &old), ("young", &young)] {
            if !collect(client).done.is_empty() && !order.contains(&name) {
                order.push(name);
            }
        }
    }
    assert_eq!(order, ["old", "young"], "and the low one last");
    assert_eq!(collect(&low).tokens.len(), 4);
}

#[test]
fn decoding_goes_on_beside_a_long_prompt() {
    let options = EngineOptions {
        prefill_chunk: 100,
        mixed_prefill_tokens: 20,
        max_draft: 0,
        ..EngineOptions::default()
    };
    let mut engine = Setup { options, ..Setup::with_ample_blocks() }.build().expect("fits");
    let talker = submit(&mut engine, 1, &TestRequest::greedy(words(1, 5), 60));
    engine.core.step(&|| Duration::ZERO).expect("no fault");
    let reader = submit(&mut engine, 2, &TestRequest::greedy(words(2, 400), 1));
    for step in 2..15 {
        engine.core.step(&|| Duration::ZERO).expect("no fault");
        assert_eq!(collect(&talker).tokens.len(), step, "a token a step");
    }
    let rows: Vec<u32> = collect(&reader).prefill.windows(2).map(|p| p[1] - p[0]).collect();
    assert!(rows.iter().all(|&rows| rows <= 21), "{rows:?}");
    run(&mut engine);
}

#[test]
fn timings_are_of_the_callers_clock() {
    let options = EngineOptions { prefill_chunk: 10, max_num_seqs: 1, ..EngineOptions::default() };
    let mut engine =
        Setup { options, drafter: None, ..Setup::with_ample_blocks() }.build().expect("fits");
    let first = submit(&mut engine, 1, &TestRequest::greedy(words(1, 30), 5));
    let second = submit(&mut engine, 2, &TestRequest::greedy(words(2, 30), 5));
    let clock = Cell::new(Duration::ZERO);
    while engine.core.step(&|| clock.get()).expect("no fault") {
        clock.set(clock.get() + Duration::from_millis(10));
    }
    let timings = collect(&first).done[0].timings;
    assert_eq!(timings.queued, Duration::ZERO);
    assert_eq!(timings.prefill, Duration::from_millis(20), "the third chunk gives the token");
    assert_eq!(timings.decode, Duration::from_millis(40));
    let timings = collect(&second).done[0].timings;
    assert_eq!(timings.queued, Duration::from_millis(70));
    assert_eq!(timings.total(), Duration::from_millis(130));
    let usage = &collect(&second).done[0].usage;
    assert_eq!(Rates::of([(usage, &timings)]).ar_decode_tokens_per_second, 100.0);
}

#[test]
fn a_device_fault_ends_every_request() {
    let mut engine = Setup::with_ample_blocks().build().expect("fits");
    engine.fail_at.store(4, Ordering::Relaxed);
    let clients: Vec<Client> =
        (0..3).map(|i| submit(&mut engine, i, &TestRequest::greedy(words(i, 40), 50))).collect();
    let error = loop {
        match engine.core.step(&|| Duration::ZERO) {
            Ok(left) => assert!(left, "the fault comes first"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Device { .. }));
    for client in &clients {
        assert!(matches!(reason(&collect(client)), FinishReason::Failed(Error::Device { .. })));
    }
    assert_eq!(engine.core.pool().free(), engine.core.pool().total());
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let build = |fake: FakeOptions, options: EngineOptions| {
        Setup { fake, options, ..Setup::with_ample_blocks() }
            .build()
            .err()
            .map(|error| error.to_string())
    };
    let (fake, options) = (FakeOptions::default(), EngineOptions::default());
    let message =
        build(FakeOptions { full_blocks: 0, ..fake }, options.clone()).expect("no blocks");
    assert!(message.contains("0 full"), "{message}");
    let none = EngineOptions { max_num_seqs: 0, ..options };
    let message = build(fake, none).expect("nobody may run");
    assert!(message.contains("max_num_seqs"), "{message}");
}
