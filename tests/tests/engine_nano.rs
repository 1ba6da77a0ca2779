//! The engine over the trained model: the golden chats together, beside others that come and go,
//! and again from the cache.

use std::time::Duration;

use muse_core::Result;
use muse_core::contract::{FinishReason, KvType, Sampling, SeqId, Token};
use muse_core::engine::{EngineCore, EngineOptions};
use muse_core::hash::hash64;
use muse_cpu::Cpu;
use muse_tests::chats::{Chat, STOP, chats};
use muse_tests::checkpoint::{Checkpoint, cpu};
use muse_tests::run::Pair;
use muse_tests::sim::{Client, Received, TestRequest, client, ids};

fn engine(kv: KvType, drafted: bool, max_num_seqs: usize) -> Result<EngineCore<Cpu>> {
    let nano = Checkpoint::nano()?;
    let drafter = drafted.then_some(&*nano.drafter);
    let pair = Pair::new(cpu(), &*nano.target, drafter, kv, &[])?;
    pair.into_engine(&EngineOptions { prefill_chunk: 64, max_num_seqs, ..EngineOptions::default() })
}

fn request(chat: &Chat) -> TestRequest {
    TestRequest { stop: STOP.to_vec(), ..TestRequest::greedy(chat.prompt.clone(), 400) }
}

fn submit(engine: &mut EngineCore<Cpu>, id: u64, request: &TestRequest) -> Client {
    let (client, sink) = client(None);
    let vocab = engine.limits().vocab;
    engine.submit(SeqId(id), request.request(vocab), sink, Duration::ZERO).expect("is taken");
    client
}

fn run(engine: &mut EngineCore<Cpu>) -> Result<()> {
    while engine.step(&|| Duration::ZERO)? {}
    assert_eq!(engine.pool().free(), engine.pool().total());
    Ok(())
}

fn collect(client: &Client) -> Received {
    client.lock().expect("no client panics").clone()
}

/// The golden tokens, the golden accepted lengths, one stop.
fn check(chat: &Chat, received: &Received, drafted: bool) {
    assert_eq!(ids(&received.tokens), chat.ids, "{}", chat.name);
    let [done] = &received.done[..] else { panic!("{} ends", received.done.len()) };
    assert!(matches!(done.reason, FinishReason::Stop(_)), "{}: {:?}", chat.name, done.reason);
    let accepted: Vec<usize> = done.usage.accepted_by_verify().map(|n| n as usize).collect();
    let expect: &[usize] = if drafted { &chat.accepted } else { &[] };
    assert_eq!(accepted, expect, "{}: accepted lengths", chat.name);
}

#[test]
fn all_chats_together_are_the_golden_ones() -> Result<()> {
    let all = chats();
    // The 18 short ones suffice where nothing is drafted.
    for (drafted, chats) in [(true, &all[..]), (false, &all[..18])] {
        let mut engine = engine(KvType::F32, drafted, 12)?;
        let clients: Vec<Client> =
            chats.iter().zip(0..).map(|(chat, i)| submit(&mut engine, i, &request(chat))).collect();
        run(&mut engine)?;
        chats
            .iter()
            .zip(&clients)
            .for_each(|(chat, client)| check(chat, &collect(client), drafted));
    }
    Ok(())
}

#[test]
fn a_cached_prompt_answers_and_drafts_alike() -> Result<()> {
    let mut engine = engine(KvType::F32, true, 1)?;
    let (mut chats, mut found) = (chats(), 0);
    chats.truncate(20);
    for (chat, i) in chats.iter().chain(&chats).zip(0..) {
        let client = submit(&mut engine, i, &request(chat));
        run(&mut engine)?;
        // The drafter's rows come with the prefix: lengths are those of a fresh prompt.
        check(chat, &collect(&client), true);
        let usage = &collect(&client).done[0].usage;
        assert!(usage.cached < usage.prompt);
        found += u64::from(usage.cached);
    }
    let rows: usize = chats.iter().map(|chat| chat.prompt.len()).sum();
    assert!(found > rows as u64, "{found} rows of twice {rows} were found again");
    Ok(())
}

#[test]
fn sampled_requests_are_the_same_alone_together_and_drafted() -> Result<()> {
    let chats = chats();
    let requests: Vec<TestRequest> = (0..12u64)
        .map(|i| {
            let sampling = Sampling {
                temperature: 0.6 + (i % 4) as f32 * 0.3,
                top_p: 0.95,
                top_k: 64,
                presence_penalty: (i % 3) as f32 * 0.2,
                seed: i,
                ..Sampling::default()
            };
            let chat = &chats[hash64(1, i) as usize % 20];
            TestRequest { sampling, logprobs: Some(1), max_tokens: 40, ..request(chat) }
        })
        .collect();
    let mut plain = engine(KvType::Bf16, false, 1)?;
    let mut alone = Vec::new();
    for (request, i) in requests.iter().zip(0..) {
        let client = submit(&mut plain, i, request);
        run(&mut plain)?;
        alone.push(collect(&client));
    }
    let mut busy = engine(KvType::Bf16, true, 7)?;
    let clients: Vec<Client> =
        requests.iter().zip(0..).map(|(request, i)| submit(&mut busy, i, request)).collect();
    // Others that are cancelled on the way.
    let others: Vec<u64> = (100..108).collect();
    for &id in &others {
        let prompt =
            (0..hash64(2, id) % 300 + 1).map(|i| Token((hash64(id, i) % 800) as u32)).collect();
        submit(&mut busy, id, &TestRequest::greedy(prompt, 100));
    }
    let mut step = 0;
    while busy.step(&|| Duration::ZERO)? {
        step += 1;
        if let Some(&id) = others.iter().find(|&&id| hash64(3, id) % 60 == step) {
            busy.cancel(SeqId(id));
        }
    }
    for (i, (client, alone)) in clients.iter().zip(&alone).enumerate() {
        // Log-probabilities too, bit for bit.
        assert_eq!(collect(client).tokens, alone.tokens, "request {i}");
    }
    Ok(())
}
