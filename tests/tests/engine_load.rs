//! The engine under load on the trained model: many concurrent requests get bit for
//! bit the tokens that each gets alone, and equal prefixes of conversations are cached.

use std::time::Duration;

use muse_core::Result;
use muse_core::contract::{FinishReason, KvType, Sampled, Sampling, SeqId, Token};
use muse_core::engine::{EngineCore, EngineOptions};
use muse_core::hash::hash64;
use muse_cpu::Cpu;
use muse_tests::chats::{STOP, chats};
use muse_tests::checkpoint::{Checkpoint, cpu};
use muse_tests::run::Pair;
use muse_tests::sim::{Client, Received, TestRequest, client};

fn engine(drafted: bool, options: &EngineOptions) -> Result<EngineCore<Cpu>> {
    let nano = Checkpoint::nano()?;
    let drafter = drafted.then_some(&*nano.drafter);
    Pair::new(cpu(), &*nano.target, drafter, KvType::Bf16, &[])?.into_engine(options)
}

fn submit(engine: &mut EngineCore<Cpu>, id: u64, request: &TestRequest) -> Client {
    let (client, sink) = client(None);
    let vocab = engine.limits().vocab;
    engine.submit(SeqId(id), request.request(vocab), sink, Duration::ZERO).expect("is taken");
    client
}

fn collect(client: &Client) -> Received {
    client.lock().expect("no client panics").clone()
}

/// Runs one request to its end.
fn answer(engine: &mut EngineCore<Cpu>, id: u64, request: &TestRequest) -> Result<Received> {
    let client = submit(engine, id, request);
    while engine.step(&|| Duration::ZERO)? {}
    assert_eq!(engine.pool().free(), engine.pool().total());
    Ok(collect(&client))
}

/// Requests of all kinds: greedy and sampled, with penalties and log-probabilities, with a set number
/// of draft tokens or the engine's, some with long prompts, many with equal prefixes.
fn mixed(count: u64) -> Vec<TestRequest> {
    let chats = chats();
    let of = |i: u64, salt: u64, n: u64| hash64(hash64(17, salt), i) % n;
    (0..count)
        .map(|i| {
            let mut prompt = chats[of(i, 1, 18) as usize].prompt.clone();
            if of(i, 2, 6) == 0 {
                let other = &chats[of(i, 3, 18) as usize];
                prompt = [other.prompt.clone(), other.ids.clone(), prompt].concat();
            }
            let sampling = Sampling {
                temperature: [0.0, 0.0, 0.7, 1.2][of(i, 4, 4) as usize],
                top_k: [0, 64][of(i, 5, 2) as usize],
                top_p: [1.0, 0.95][of(i, 6, 2) as usize],
                repetition_penalty: [1.0, 1.0, 1.2][of(i, 7, 3) as usize],
                presence_penalty: [0.0, 0.0, 0.5][of(i, 8, 3) as usize],
                seed: i,
                ..Sampling::default()
            };
            TestRequest {
                sampling,
                stop: STOP.to_vec(),
                logprobs: [None, Some(0), Some(3)][of(i, 9, 3) as usize],
                max_draft: [None, None, Some(0), Some(4)][of(i, 10, 4) as usize],
                priority: of(i, 11, 3) as i32,
                ..TestRequest::greedy(prompt, 8 + of(i, 12, 40) as u32)
            }
        })
        .collect()
}

/// A token with the bits of its log-probability.
type Bits = (Token, u32);

fn bits(tokens: &[Sampled]) -> Vec<(Bits, Vec<Bits>)> {
    let top = |p: &Sampled| p.top.iter().map(|(token, log)| (*token, log.to_bits())).collect();
    tokens.iter().map(|p| ((p.token, p.logprob.to_bits()), top(p))).collect()
}

#[test]
fn sixty_four_concurrent_requests_equal_each_alone() -> Result<()> {
    let requests = mixed(64);
    let mut plain = engine(false, &EngineOptions { max_num_seqs: 1, ..EngineOptions::default() })?;
    let mut alone = Vec::new();
    for (i, request) in (0..).zip(&requests) {
        alone.push(answer(&mut plain, i, request)?);
    }
    // Chunks that divide no prompt evenly, too few KV blocks for all sequences, a clock that moves.
    let options = EngineOptions {
        prefill_chunk: 37,
        mixed_prefill_tokens: 50,
        max_num_seqs: 64,
        queue: 64,
        ..EngineOptions::default()
    };
    let mut busy = engine(true, &options)?;
    let (mut clients, mut cancelled) = (Vec::new(), 0);
    let clock = std::time::Instant::now();
    let (mut step, mut peak_active) = (0, 0);
    loop {
        // Four come a step.
        for request in requests.iter().skip(clients.len()).take(4) {
            clients.push(submit(&mut busy, clients.len() as u64, request));
        }
        if !busy.step(&|| clock.elapsed())? && clients.len() == requests.len() {
            break;
        }
        step += 1;
        peak_active = peak_active.max(busy.load().1);
        for id in
            (0..64).filter(|&id| hash64(5, id).is_multiple_of(4) && hash64(6, id) % 40 + 2 == step)
        {
            busy.cancel(SeqId(id));
        }
    }
    assert!(peak_active >= 32, "at most {peak_active} ran together");
    assert_eq!(busy.pool().free(), busy.pool().total());
    for (i, (client, alone)) in clients.iter().zip(&alone).enumerate() {
        let received = collect(client);
        let [done] = &received.done[..] else { panic!("{} ends", received.done.len()) };
        let (tokens, expect) = (bits(&received.tokens), bits(&alone.tokens));
        if matches!(done.reason, FinishReason::Cancelled) {
            cancelled += 1;
            assert_eq!(tokens[..], expect[..tokens.len()], "request {i}, cancelled");
        } else {
            assert_eq!(tokens, expect, "request {i}");
        }
    }
    assert!(cancelled >= 4, "{cancelled} were cancelled on their way");
    Ok(())
}

/// 2,000 tokens of conversation: golden chats joined.
fn history() -> Vec<Token> {
    let chats = chats();
    let turns = chats[..18].iter().flat_map(|chat| [&chat.prompt, &chat.ids]);
    turns.flatten().copied().cycle().take(2000).collect()
}

/// Tokens of the prompt that ran.
fn ran(received: &Received) -> u32 {
    received.done[0].usage.prompt - received.done[0].usage.cached
}

#[test]
fn later_turns_branches_and_edits_run_what_is_new() -> Result<()> {
    let chats = chats();
    for drafted in [false, true] {
        let mut engine = engine(drafted, &EngineOptions::default())?;
        let first = TestRequest { stop: STOP.to_vec(), ..TestRequest::greedy(history(), 60) };
        let received = answer(&mut engine, 1, &first)?;
        assert_eq!(ran(&received), 2000);

        // The next prompt repeats the history and the answer. The answer's last token never ran.
        let answer_ids: Vec<Token> = received.tokens.iter().map(|sampled| sampled.token).collect();
        let question = &chats[0].prompt;
        let second = [first.prompt.clone(), answer_ids.clone(), question.clone()].concat();
        let received = answer(&mut engine, 2, &TestRequest::greedy(second.clone(), 20))?;
        assert_eq!(ran(&received) as usize, question.len() + 1, "drafted: {drafted}");
        let mut fresh = self::engine(false, &EngineOptions::default())?;
        let expect = answer(&mut fresh, 1, &TestRequest::greedy(second, 20))?;
        assert_eq!(received.tokens, expect.tokens, "drafted: {drafted}");

        // Another end of the same history, inside a KV block.
        let branch = [&first.prompt[..1990], &chats[3].prompt[20..]].concat();
        let received = answer(&mut engine, 3, &TestRequest::greedy(branch.clone(), 20))?;
        assert_eq!(ran(&received) as usize, branch.len() - 1990, "drafted: {drafted}");
        let expect = answer(&mut fresh, 2, &TestRequest::greedy(branch, 20))?;
        assert_eq!(received.tokens, expect.tokens, "drafted: {drafted}");

        // One token of the system block, which comes first.
        let mut edited = first.prompt.clone();
        edited[0] = Token(5);
        assert_eq!(ran(&answer(&mut engine, 4, &TestRequest::greedy(edited, 1))?), 2000);
    }
    Ok(())
}

#[test]
fn draft_tokens_are_accepted_as_often_after_prefix_reuse() -> Result<()> {
    let chats = chats();
    let options = EngineOptions { adapt_draft: false, ..EngineOptions::default() };
    let (mut shared, mut id) = (engine(true, &options)?, 0);
    let mut accepted = [0, 0];
    answer(&mut shared, 1000, &TestRequest::greedy(history(), 1))?;
    for chat in chats[..18].iter().filter(|chat| chat.ids.len() > 30).take(4) {
        let prompt = [&history()[..1900], &chat.prompt[..]].concat();
        let request = TestRequest { stop: STOP.to_vec(), ..TestRequest::greedy(prompt, 60) };
        for (engine, accepted) in
            [&mut shared, &mut engine(true, &options)?].into_iter().zip(&mut accepted)
        {
            id += 1;
            let usage = answer(engine, id, &request)?.done[0].usage.clone();
            *accepted += usage.accepted();
            // All of the history is cached but at most one KV block.
            assert!(usage.cached == 0 || usage.cached >= 1900 - 64, "{}", usage.cached);
        }
    }
    let [reused, fresh] = accepted.map(f64::from);
    assert!(fresh > 30.0, "{fresh} draft tokens were accepted: little was tested");
    assert!((reused / fresh - 1.0).abs() < 0.03, "{reused} with reuse, {fresh} without");
    Ok(())
}
