//! What the engine does by measured time: as many draft tokens as pay, none where none
//! do, and as many prompt tokens as keep the target ITL. The tokens stay the same.

use std::cell::Cell;
use std::time::Duration;

use muse_core::contract::{Sampling, SeqId, Token};
use muse_core::engine::{EngineOptions, TargetItl};
use muse_core::hash::hash64;
use muse_testkit::fake::{FakeCost, FakeOptions};
use muse_tests::sim::{Client, Received, Setup, TestEngine, TestRequest, client, plain};

/// Weights are read once a pass and rows are nearly free: drafts pay.
const BY_MEMORY: FakeCost = FakeCost { pass: |rows| 980 + 20 * rows as u64, draft: |_| 100 };
/// Every row costs and so does the drafter, as on a model that fits into the cache: none pay.
const BY_ROWS: FakeCost =
    FakeCost { pass: |rows| 400 + 600 * rows as u64, draft: |blocks| 1000 * blocks as u64 };
/// Flat as far as four rows, then steep: a few drafts pay, a whole block does not.
const BY_STEPS: FakeCost =
    FakeCost { pass: |rows| 1000 + 900 * rows.saturating_sub(4) as u64, draft: |_| 150 };

/// As on a small model in the cache: a row costs a third of a pass, the drafter more than one.
const BY_BOTH: FakeCost =
    FakeCost { pass: |rows| 190 + 80 * rows as u64, draft: |blocks| 350 * blocks as u64 };

fn words(seed: u64, count: usize) -> Vec<Token> {
    (0..count as u64).map(|i| Token((hash64(seed, i) % 61) as u32)).collect()
}

fn setup(cost: FakeCost, hit: f64) -> Setup {
    let fake = FakeOptions { cost, full_blocks: 200, window_blocks: 200, ..FakeOptions::default() };
    Setup { fake, drafter: Some((15, 64, hit)), ..Setup::with_ample_blocks() }
}

/// Runs requests, `together` at a time. Returns what was received and the time on the model's clock.
fn run(setup: &Setup, asks: &[TestRequest], together: usize) -> (Vec<Received>, Duration) {
    run_disturbed(setup, asks, together, &|_| 0)
}

/// The same with a disturbed clock: at its n-th reading, `lost(n)` more microseconds seem to have
/// passed. The returned time is without them: it differs only by what the engine then decides.
fn run_disturbed(
    setup: &Setup,
    asks: &[TestRequest],
    together: usize,
    lost: &dyn Fn(u64) -> u64,
) -> (Vec<Received>, Duration) {
    let (looks, late) = (Cell::new(0), Cell::new(0));
    let mut engine = setup.build().expect("fits");
    let mut received = Vec::new();
    for (first, asks) in (0..).step_by(together).zip(asks.chunks(together)) {
        let clients: Vec<Client> = (first..)
            .zip(asks)
            .map(|(id, request)| {
                let (client, sink) = client(None);
                let (id, now) = (SeqId(id), engine.model.elapsed());
                engine.core.submit(id, request.request(61), sink, now).expect("is taken");
                client
            })
            .collect();
        let model = engine.model.clone();
        let now = || {
            looks.set(looks.get() + 1);
            late.set(late.get() + lost(looks.get()));
            model.elapsed() + Duration::from_micros(late.get())
        };
        while engine.core.step(&now).expect("no fault") {}
        received.extend(clients.iter().map(|client| client.lock().expect("no panic").clone()));
    }
    (received, engine.model.elapsed())
}

fn asks(max_draft: Option<u32>) -> Vec<TestRequest> {
    let request = |i| TestRequest { max_draft, ..TestRequest::greedy(words(i, 10), 400) };
    (0..4).map(request).collect()
}

fn verifies(received: &[Received]) -> Vec<u32> {
    received.iter().map(|received| received.done[0].usage.verifies.len() as u32).collect()
}

#[test]
fn adaptive_drafts_come_near_the_better_of_always_and_never() {
    for (name, cost, hit) in [
        ("memory, good", BY_MEMORY, 0.85),
        ("memory, poor", BY_MEMORY, 0.3),
        ("rows, good", BY_ROWS, 0.85),
        ("rows, poor", BY_ROWS, 0.3),
        ("steps, good", BY_STEPS, 0.85),
        ("steps, poor", BY_STEPS, 0.3),
    ] {
        for together in [1, 4] {
            let setup = setup(cost, hit);
            let (received, adaptive) = run(&setup, &asks(None), together);
            let (alike, always) = run(&setup, &asks(Some(15)), together);
            let (plainly, never) = run(&setup, &asks(Some(0)), together);
            for (received, other) in
                received.iter().zip(&alike).chain(received.iter().zip(&plainly))
            {
                assert_eq!(received.tokens, other.tokens, "{name}");
            }
            let share = adaptive.as_secs_f64() / always.min(never).as_secs_f64();
            println!(
                "{name}, {together} together: always {always:?}, never {never:?}, adaptive \
                 {adaptive:?}, {share:.3} of the better"
            );
            assert!(share < 1.05, "{name}, {together} together: {share:.3}");
        }
    }
}

#[test]
fn a_disturbed_clock_misleads_little() {
    for (name, cost, hit) in [
        ("memory, good", BY_MEMORY, 0.85),
        ("rows, good", BY_ROWS, 0.85),
        ("steps, poor", BY_STEPS, 0.3),
        ("both, good", BY_BOTH, 0.9),
    ] {
        let setup = setup(cost, hit);
        let request =
            |max_draft| move |i| TestRequest { max_draft, ..TestRequest::greedy(words(i, 10), 60) };
        let asks = |max_draft| (0..40).map(request(max_draft)).collect::<Vec<_>>();
        let (_, always) = run(&setup, &asks(Some(15)), 1);
        let (_, never) = run(&setup, &asks(Some(0)), 1);
        for seed in 0..4 {
            // One look in ten comes up to 20 ms late, as beside other work on the same cores.
            let late = |n| hash64(seed, n).is_multiple_of(10);
            let lost = |n| if late(n) { hash64(n, seed) % 20_000 } else { 0 };
            let (_, adaptive) = run_disturbed(&setup, &asks(None), 1, &lost);
            let share = adaptive.as_secs_f64() / always.min(never).as_secs_f64();
            println!("{name}, {seed}: always {always:?}, never {never:?}, adaptive {share:.3}");
            assert!(share < 1.1, "{name}: {share:.3} of the better");
        }
    }
}

#[test]
fn what_was_usual_does_not_bind_a_request() {
    // Drafts were never right for long; then a request comes that they suit.
    let good = setup(BY_MEMORY, 0.9);
    let asks = asks(None);
    let (_, always) = run(&good, &[TestRequest { max_draft: Some(15), ..asks[0].clone() }], 1);
    let mut engine = good.build().expect("fits");
    // Sampled flat, the same drafter is wrong.
    let sampling = Sampling { temperature: 9.0, seed: 1, ..Sampling::default() };
    let wild =
        TestRequest { sampling, max_draft: Some(15), ..TestRequest::greedy(words(9, 10), 400) };
    let mut took = Duration::ZERO;
    for (id, request) in (0..).zip([&wild, &wild, &wild, &asks[0]]) {
        let (_, sink) = client(None);
        let (before, model) = (engine.model.elapsed(), engine.model.clone());
        engine.core.submit(SeqId(id), request.request(61), sink, before).expect("is taken");
        while engine.core.step(&|| model.elapsed()).expect("no fault") {}
        took = engine.model.elapsed() - before;
    }
    let share = took.as_secs_f64() / always.as_secs_f64();
    let (_, never) = run(&good, &[TestRequest { max_draft: Some(0), ..asks[0].clone() }], 1);
    assert!(never > 2 * always && share < 1.3, "{share:.3} of always {always:?}, never {never:?}");
}

#[test]
fn where_none_pay_requests_park() {
    let (received, _) = run(&setup(BY_ROWS, 0.85), &asks(None), 1);
    let verifies = verifies(&received);
    assert!(verifies.iter().all(|&n| n < 40), "of 400 steps each: {verifies:?}");
}

#[test]
fn trials_of_many_at_once_keep_to_the_rows_there_are() {
    // Where none are right all park, and all try again in the same step: two drafts for four.
    let cost = setup(BY_MEMORY, 0.0);
    let setup = Setup { fake: FakeOptions { max_logits_rows: 6, ..cost.fake }, ..cost };
    let asks = asks(None);
    let (received, _) = run(&setup, &asks, 4);
    assert!(verifies(&received).iter().sum::<u32>() > 0, "some are tried");
    for (received, request) in received.iter().zip(&asks) {
        assert_eq!(received.tokens, plain(setup.fake, request));
    }
}

#[test]
fn a_length_that_is_asked_for_is_kept() {
    for max in [0, 1, 6, 15] {
        let (received, _) = run(&setup(BY_ROWS, 1.0), &asks(Some(max)), 1);
        // A token comes first, and the last one of them needs no draft.
        for usage in received.iter().map(|received| &received.done[0].usage) {
            let most = usage.accepted_by_verify().max().unwrap_or(0);
            assert_eq!(most, max);
            assert_eq!(
                usage.verifies.len() as u32,
                if max == 0 { 0 } else { 398_u32.div_ceil(max + 1) }
            );
        }
    }
}

#[test]
fn without_a_moving_clock_all_draft_tokens_are_made() {
    let (received, _) = run(&setup(FakeCost::NOTHING, 1.0), &asks(None), 1);
    assert_eq!(verifies(&received), [25; 4]);
}

#[test]
fn prefill_of_others_keeps_the_target_itl() {
    // A tenth of a millisecond a row: 100 rows fit into the time, by what was measured.
    let cost = FakeCost { pass: |rows| 500 + 100 * rows as u64, draft: |_| 0 };
    let fake = FakeOptions { cost, full_blocks: 200, window_blocks: 200, ..FakeOptions::default() };
    let gap = Duration::from_micros(10_500);
    let slowest = |target_itl| {
        let options = EngineOptions { target_itl, ..EngineOptions::default() };
        let setup = Setup { fake, options, drafter: None, ..Setup::with_ample_blocks() };
        let mut engine = setup.build().expect("fits");
        let mut clients = Vec::new();
        let (mut slowest, mut emitted) = (Duration::ZERO, 0);
        for (id, request) in (1..).zip([
            TestRequest::greedy(words(1, 900), 1),
            TestRequest::greedy(words(2, 5), 120),
            TestRequest::greedy(words(3, 3000), 1),
        ]) {
            let (client, sink) = client(None);
            let now = engine.model.elapsed();
            engine.core.submit(SeqId(id), request.request(61), sink, now).expect("is taken");
            clients.push((client, request));
            // The first has ended and the second decodes when the third is submitted.
            for _ in 0..if id < 3 { 8 } else { 200 } {
                let before = engine.model.elapsed();
                let model = engine.model.clone();
                engine.core.step(&|| model.elapsed()).expect("no fault");
                let talker = clients.get(1).map(|(c, _)| c.lock().expect("no panic").tokens.len());
                if talker.is_some_and(|now| std::mem::replace(&mut emitted, now) < now && now > 1) {
                    slowest = slowest.max(engine.model.elapsed() - before);
                }
            }
        }
        for (client, request) in &clients {
            let received = client.lock().expect("no panic");
            assert_eq!(received.tokens, plain(fake, request));
        }
        slowest
    };
    let (free, bound) = (slowest(TargetItl::Unbounded), slowest(TargetItl::Fixed(gap)));
    assert!(free > 2 * gap, "{free:?} without a bound");
    assert!(bound <= gap + gap / 5 && bound > gap / 2, "{bound:?} between tokens, {gap:?} asked");
}

/// Nothing longer than a token was measured when the prompt arrives: it begins with few tokens.
#[test]
fn the_first_long_prompt_leaves_others_their_pace() {
    let cost = FakeCost { pass: |rows| 500 + 1000 * rows as u64, draft: |_| 0 };
    let fake = FakeOptions { cost, full_blocks: 200, window_blocks: 200, ..FakeOptions::default() };
    let setup = Setup { fake, drafter: None, ..Setup::with_ample_blocks() };
    let mut engine = setup.build().expect("fits");
    let (talker, sink) = client(None);
    let model = engine.model.clone();
    let submit = |engine: &mut TestEngine, id, prompt: Vec<Token>, max, sink| {
        let request = TestRequest::greedy(prompt, max).request(61);
        engine.core.submit(SeqId(id), request, sink, model.elapsed()).expect("is taken");
    };
    submit(&mut engine, 1, words(1, 2), 400, sink);
    let clock = || model.elapsed();
    (0..6).for_each(|_| assert!(engine.core.step(&clock).expect("no fault")));
    let (reader, sink) = client(None);
    submit(&mut engine, 2, words(2, 3000), 1, sink);
    let (mut slowest, mut steps) = (Duration::ZERO, 0);
    while reader.lock().expect("no panic").done.is_empty() {
        let before = model.elapsed();
        assert!(engine.core.step(&clock).expect("no fault"), "the talker is not done");
        slowest = slowest.max(model.elapsed() - before);
        steps += 1;
    }
    assert!(slowest <= Duration::from_millis(60), "{slowest:?} where 50 ms are the target");
    assert!(steps <= 100, "{steps} steps for 3,000 tokens, about 48 of which fit into one");
    assert!(talker.lock().expect("no panic").tokens.len() >= steps);
}

/// Times to the first token of prompts that arrive together, in order of arrival.
fn first_token_times(lengths: &[usize]) -> Vec<Duration> {
    let cost = FakeCost { pass: |rows| 500 + 100 * rows as u64, draft: |_| 0 };
    let fake = FakeOptions { cost, full_blocks: 200, window_blocks: 200, ..FakeOptions::default() };
    let options = EngineOptions::default();
    let setup = Setup { fake, options, drafter: None, ..Setup::with_ample_blocks() };
    let mut engine = setup.build().expect("fits");
    let model = engine.model.clone();
    let clients = (1..).zip(lengths).map(|(id, &length)| {
        let (client, sink) = client(None);
        let request = TestRequest::greedy(words(id, length), 40).request(61);
        engine.core.submit(SeqId(id), request, sink, model.elapsed()).expect("is taken");
        client
    });
    let clients: Vec<Client> = clients.collect();
    while engine.core.step(&|| model.elapsed()).expect("no fault") {}
    let timings = |client: &Client| client.lock().expect("no panic").done[0].timings;
    clients.iter().map(timings).map(|timings| timings.queued + timings.prefill).collect()
}

#[test]
fn prompts_that_arrive_together_run_one_after_the_other() {
    for count in [4, 8] {
        let times = first_token_times(&vec![1000; count]);
        assert!(times.is_sorted(), "{times:?}");
        // Alone each takes 0.1 s of passes; shared out evenly all would end at the end.
        let (last, sum) = (times[count - 1], times.iter().sum::<Duration>());
        let mean = sum / count as u32;
        assert!(mean < last.mul_f64(0.7), "mean {mean:?}, last {last:?}");
        assert!(last < Duration::from_millis(110 * count as u64), "{last:?} for {count}");
    }
    // A short one overtakes a long one, once it is known what tokens cost.
    let times = first_token_times(&[100, 4000, 200]);
    assert!(times[2] < times[1], "{times:?}");
}

#[test]
fn rows_go_to_whom_they_help_most() {
    // Twelve drafts for two: the drafter is always right about one and seldom about the other,
    // which draws its tokens from a flat distribution.
    let fake = FakeOptions { max_logits_rows: 14, ..setup(BY_MEMORY, 1.0).fake };
    let setup = Setup { fake, ..setup(BY_MEMORY, 1.0) };
    let sure = TestRequest::greedy(words(1, 10), 150);
    let sampling = Sampling { temperature: 3.0, seed: 3, ..Sampling::default() };
    let unsure = TestRequest { sampling, ..TestRequest::greedy(words(2, 10), 150) };
    let (received, _) = run(&setup, &[sure.clone(), unsure.clone()], 2);
    for (received, request) in received.iter().zip([&sure, &unsure]) {
        assert_eq!(received.tokens, plain(setup.fake, request));
    }
    let length = |received: &Received| {
        let usage = &received.done[0].usage;
        f64::from(usage.drafted()) / usage.verifies.len() as f64
    };
    let (sure, unsure) = (length(&received[0]), length(&received[1]));
    assert!(sure > 9.0 && unsure < 5.0, "blocks of {sure:.1} and {unsure:.1} drafts");
}
