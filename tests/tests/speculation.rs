//! The drafter never changes the output: drafted and plain completions are equal, whatever the
//! prompt, the draft length, the sampling, and wherever the end falls in a draft block.

use std::time::Duration;

use muse_core::Result;
use muse_core::contract::{FinishReason, KvType, Sampling, SeqId, Token};
use muse_core::engine::{EngineCore, EngineOptions};
use muse_cpu::Cpu;
use muse_testkit::Golden;
use muse_tests::chats::{STOP, chats};
use muse_tests::checkpoint::{Checkpoint, cpu};
use muse_tests::run::Pair;
use muse_tests::sim::{Client, TestRequest, client, ids};

/// Around the ends of KV blocks and of both models' windows (32 and 64, and 16 tokens of a draft block).
const LENGTHS: [usize; 22] =
    [1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 80, 127, 128, 129, 200, 255, 256, 257, 300, 400];

/// An engine, and the id of its next request.
struct Server {
    engine: EngineCore<Cpu>,
    next: u64,
}

/// The outcome of a request.
struct Answer {
    ids: Vec<Token>,
    accepted: Vec<u32>,
    stopped_by: Option<Token>,
}

impl Server {
    fn new(checkpoint: &Checkpoint, kv: KvType) -> Result<Self> {
        let pair = Pair::new(cpu(), &*checkpoint.target, Some(&*checkpoint.drafter), kv, &[])?;
        Ok(Self { engine: pair.into_engine(&EngineOptions::default())?, next: 1 })
    }

    /// Runs requests concurrently.
    fn answers(&mut self, requests: impl IntoIterator<Item = TestRequest>) -> Result<Vec<Answer>> {
        let vocab = self.engine.limits().vocab;
        let mut clients = Vec::new();
        for request in requests {
            let (client, sink) = client(None);
            let id = SeqId(self.next);
            self.engine.submit(id, request.request(vocab), sink, Duration::ZERO)?;
            self.next += 1;
            clients.push(client);
        }
        while self.engine.step(&|| Duration::ZERO)? {}
        let answer = |client: &Client| {
            let received = client.lock().expect("no client panics");
            let [done] = &received.done[..] else { panic!("{} ends", received.done.len()) };
            let stopped_by = match done.reason {
                FinishReason::Stop(token) => Some(token),
                FinishReason::Length => None,
                ref other => panic!("ended by {other:?}"),
            };
            Answer {
                ids: ids(&received.tokens),
                accepted: done.usage.accepted_by_verify().collect(),
                stopped_by,
            }
        };
        Ok(clients.iter().map(answer).collect())
    }
}

fn sampled(seed: u64) -> Sampling {
    Sampling { temperature: 1.0, top_k: 64, top_p: 0.95, seed, ..Sampling::default() }
}

/// Prompts of many lengths, each plain and with four draft lengths; four consecutive prompts cover
/// all draft lengths of 0 to 15. Returns how many draft tokens were accepted.
fn check_lengths(
    checkpoint: &Checkpoint,
    text: &[Token],
    sampling: &Sampling,
    max_tokens: u32,
) -> Result<u32> {
    let mut server = Server::new(checkpoint, KvType::Bf16)?;
    let mut accepted = 0;
    for (i, length) in (0..).zip(LENGTHS) {
        let drafts: Vec<u32> = (0..4).map(|step| i % 4 + 4 * step).collect();
        let request = |draft| TestRequest {
            sampling: sampling.clone(),
            max_draft: Some(draft),
            ..TestRequest::greedy(text[..length].to_vec(), max_tokens)
        };
        let plain = server.answers([request(0)])?.remove(0);
        assert_eq!(plain.ids.len(), max_tokens as usize, "{length} tokens, plain");
        let drafted = server.answers(drafts.iter().map(|&draft| request(draft)))?;
        for (draft, answer) in drafts.iter().zip(&drafted) {
            assert_eq!(answer.ids, plain.ids, "{length} tokens, drafts of {draft}");
            assert!(answer.accepted.iter().all(|accepted| accepted <= draft));
            accepted += answer.accepted.iter().sum::<u32>();
        }
    }
    Ok(accepted)
}

/// Prompts and answers of golden chats, joined: the drafter predicts these answers well.
fn familiar_text() -> Vec<Token> {
    let chats = chats();
    let named = |name| chats.iter().find(|chat| chat.name == name).expect("a golden chat");
    let both = |name| [named(name).prompt.clone(), named(name).ids.clone()].concat();
    ["story", "count", "code"].map(both).concat()
}

#[test]
fn nano_at_all_lengths() -> Result<()> {
    let nano = Checkpoint::nano()?;
    let accepted = check_lengths(&nano, &familiar_text(), &Sampling::default(), 20)?;
    assert!(accepted > 200, "{accepted} draft tokens were accepted: little was tested");
    Ok(())
}

#[test]
fn nano_sampled_at_all_lengths() -> Result<()> {
    let accepted = check_lengths(&Checkpoint::nano()?, &familiar_text(), &sampled(11), 20)?;
    assert!(accepted > 100, "{accepted} draft tokens were accepted: little was tested");
    Ok(())
}

/// On a random model nearly no draft token is accepted: rejection at every length.
#[test]
fn tiny_at_all_lengths() -> Result<()> {
    let golden = Golden::open("tiny/golden/text_f32.safetensors");
    let text: Vec<Token> = golden.tokens("p100.ids").repeat(4);
    check_lengths(&Checkpoint::tiny()?, &text, &Sampling::default(), 8)?;
    check_lengths(&Checkpoint::tiny()?, &text, &sampled(12), 8).map(drop)
}

#[test]
fn chats_sampled() -> Result<()> {
    let mut server = Server::new(&Checkpoint::nano()?, KvType::Bf16)?;
    let requests = |max_draft: Option<u32>| {
        chats().into_iter().take(18).zip(0..).map(move |(chat, seed)| TestRequest {
            sampling: sampled(seed),
            stop: STOP.to_vec(),
            max_draft,
            ..TestRequest::greedy(chat.prompt, 60)
        })
    };
    let (plain, drafted) = (server.answers(requests(Some(0)))?, server.answers(requests(None))?);
    for (plain, drafted) in plain.iter().zip(&drafted) {
        assert_eq!(plain.ids, drafted.ids);
        assert_eq!(plain.stopped_by, drafted.stopped_by);
    }
    assert!(drafted.iter().any(|answer| answer.accepted.iter().any(|&n| n > 5)));
    Ok(())
}

/// The first blocks of `code` have 7, 15, 10 and 15 accepted draft tokens, so that every end up to
/// 50 tokens falls inside one of them.
#[test]
fn ends_inside_a_block() -> Result<()> {
    let chats = chats();
    let chat = chats.iter().find(|chat| chat.name == "code").expect("a golden chat");
    assert_eq!(chat.accepted[..4], [7, 15, 10, 15]);
    let mut server = Server::new(&Checkpoint::nano()?, KvType::F32)?;

    let lengths = server.answers((1..=50).map(|n| TestRequest::greedy(chat.prompt.clone(), n)))?;
    for (answer, n) in lengths.iter().zip(1..) {
        assert_eq!(answer.ids, chat.ids[..n], "{n} tokens");
        assert_eq!(answer.stopped_by, None, "{n} tokens");
    }

    let stop_at = |at: usize| TestRequest {
        stop: vec![Token(897), chat.ids[at]],
        ..TestRequest::greedy(chat.prompt.clone(), 100)
    };
    let stopped = server.answers((0..50).map(stop_at))?;
    for (answer, at) in stopped.iter().zip(0..) {
        let stop = chat.ids[at];
        let first = chat.ids.iter().position(|&id| id == stop).expect("it stands at `at`");
        assert_eq!(answer.ids, chat.ids[..=first], "stop token {}", stop.0);
        assert_eq!(answer.stopped_by, Some(stop));
    }
    Ok(())
}
