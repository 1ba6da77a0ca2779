//! What a seed generates: an engine and the requests that are submitted to it.

use std::sync::Arc;

use muse_core::contract::{Sampling, Token};
use muse_core::engine::EngineOptions;
use muse_core::hash::hash64;
use muse_testkit::fake::{FakeCost, FakeOffloadStore, FakeOptions};

use super::plant::PlantedFault;
use super::test_engine::{Grammar, Setup, TestRequest};

/// Random numbers of a seed.
pub(super) struct Random {
    seed: u64,
    drawn: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, drawn: 0 }
    }

    /// Uniform in `low..=high`.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        self.drawn += 1;
        low + hash64(self.seed, self.drawn) % (high - low + 1)
    }

    /// Once in `n`.
    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.between(1, n) == 1
    }

    fn share(&mut self) -> f64 {
        self.between(0, 1000) as f64 / 1000.0
    }
}

/// No time at all, passes of constant time, passes by tokens, an expensive drafter.
const COSTS: [FakeCost; 4] = [
    FakeCost::NOTHING,
    FakeCost { pass: |_| 50, draft: |_| 5 },
    FakeCost { pass: |rows| 10 + 2 * rows as u64, draft: |_| 5 },
    FakeCost { pass: |_| 40, draft: |blocks| 40 * blocks as u64 },
];

/// A request and its client's behaviour.
#[derive(Clone)]
pub(super) struct Arrival {
    pub(super) step: u64,
    pub(super) request: TestRequest,
    /// Steps after the arrival at which it is cancelled.
    pub(super) cancelled_after: Option<u64>,
    /// Tokens after which the client leaves.
    pub(super) leaves_after: Option<usize>,
    /// The earlier request whose prompt and completion this one continues.
    pub(super) follows: Option<usize>,
}

pub(super) fn setup(random: &mut Random, plant: PlantedFault) -> Setup {
    let width = random.between(1, 15) as usize;
    let fake = FakeOptions {
        full_blocks: random.between(6, 24) as usize,
        window_blocks: random.between(8, 24) as usize,
        reach: random.between(1, 150) as u32,
        rows: random.between(48, 200) as usize,
        max_logits_rows: random.between(24, 64) as usize,
        max_positions: 600,
        peak: random.between(0, 6) as f32,
        cost: COSTS[random.between(0, 3) as usize],
        ..FakeOptions::default()
    };
    let drafter =
        (!random.one_in(5)).then(|| (width, random.between(1, 160) as u32, random.share()));
    let options = EngineOptions {
        max_num_seqs: random.between(1, 9) as usize,
        prefill_chunk: random.between(1, 120) as usize,
        mixed_prefill_tokens: random.between(1, 80) as usize,
        queue: 1000,
        kv_offload: random
            .one_in(3)
            .then(|| Arc::new(FakeOffloadStore::new(random.between(0, 9))) as Arc<_>),
        ..EngineOptions::default()
    };
    Setup { fake, drafter, options, plant }
}

pub(super) fn arrivals(random: &mut Random, setup: &Setup, max_positions: u64) -> Vec<Arrival> {
    let count = random.between(3, 14);
    let prefixes: Vec<Vec<Token>> = (0..3)
        .map(|_| {
            let len = random.between(1, max_positions - 1);
            tokens(random, setup, len)
        })
        .collect();
    let mut step = 0;
    (0..count)
        .map(|i| {
            step += random.between(0, 12);
            let prefix = &prefixes[random.between(0, 2) as usize];
            let kept = random.between(1, prefix.len() as u64) as usize;
            let mut prompt = prefix[..kept].to_vec();
            let more = random.between(0, 40).min(max_positions - 1 - kept as u64);
            prompt.extend(tokens(random, setup, more));
            Arrival {
                step,
                request: request(random, setup, prompt, max_positions),
                cancelled_after: random.one_in(6).then(|| random.between(0, 30)),
                leaves_after: random.one_in(8).then(|| random.between(1, 20) as usize),
                follows: (i > 0 && random.one_in(3)).then(|| random.between(0, i - 1) as usize),
            }
        })
        .collect()
}

fn tokens(random: &mut Random, setup: &Setup, count: u64) -> Vec<Token> {
    (0..count).map(|_| Token(random.between(0, setup.fake.vocab as u64 - 1) as u32)).collect()
}

fn request(
    random: &mut Random,
    setup: &Setup,
    prompt: Vec<Token>,
    max_positions: u64,
) -> TestRequest {
    let vocab = setup.fake.vocab as u64;
    let token = |random: &mut Random| Token(random.between(0, vocab - 1) as u32);
    // Few different pictures at few positions, so that some prompts share theirs or differ in it
    // alone.
    let most = (max_positions - prompt.len() as u64).saturating_sub(1) / 2;
    let picture = (most > 0 && random.one_in(3)).then(|| {
        let before = (10 * random.between(0, 1) as usize).min(prompt.len() - 1);
        (before, random.between(1, 3), random.between(1, most.min(150)) as usize)
    });
    let rows = picture.map_or(0, |(_, _, rows)| rows);
    let max_new = max_positions - (prompt.len() + rows) as u64;
    let sampling = Sampling {
        temperature: if random.one_in(2) { 0.0 } else { random.between(1, 20) as f32 / 10.0 },
        top_k: if random.one_in(2) { 0 } else { random.between(1, vocab) as u32 },
        top_p: if random.one_in(2) { 1.0 } else { random.share() as f32 },
        min_p: if random.one_in(4) { 0.1 } else { 0.0 },
        repetition_penalty: if random.one_in(4) { 1.3 } else { 1.0 },
        frequency_penalty: if random.one_in(4) { 0.4 } else { 0.0 },
        presence_penalty: if random.one_in(4) { 0.7 } else { 0.0 },
        logit_bias: if random.one_in(6) { vec![(token(random), 3.0)] } else { Vec::new() },
        seed: random.between(0, u64::MAX - 1),
    };
    let grammar = match random.between(0, 7) {
        0 => Grammar::Even,
        1 => Grammar::Forced(random.between(0, 9) as usize, vec![token(random), token(random)]),
        _ => Grammar::Free,
    };
    let max_tokens = random.between(1, max_new.min(90)) as u32;
    TestRequest {
        prompt,
        picture,
        sampling,
        stop: if random.one_in(2) { vec![token(random)] } else { Vec::new() },
        max_tokens,
        max_draft: random.one_in(4).then(|| random.between(0, 6) as u32),
        logprobs: random.one_in(4).then_some(2),
        grammar,
        deadline_ms: random.one_in(8).then(|| random.between(0, 40)),
        priority: random.between(0, 2) as i32 - 1,
        min_tokens: if random.one_in(4) {
            random.between(0, u64::from(max_tokens)) as u32
        } else {
            0
        },
        group: random.one_in(2).then(|| random.between(0, 1)),
    }
}
