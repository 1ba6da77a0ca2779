//! What a seed generates: an engine and the requests that are submitted to it.

use std::sync::Arc;

use muse_core::contract::{Sampling, Token};
use muse_core::engine::EngineOptions;
use muse_core::hash::hash64;
use muse_testkit::fake::{FakeCost, FakeOffloadStore, FakeOptions};

use super::plant::PlantedFault;
use super::rig::{Grammar, Setup, TestRequest};

/// Random numbers of a seed.
pub(super) struct Dice {
    seed: u64,
    drawn: u64,
}

impl Dice {
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
    pub(super) ask: TestRequest,
    /// Steps after the arrival at which it is cancelled.
    pub(super) cancelled_after: Option<u64>,
    /// Tokens after which the client leaves.
    pub(super) leaves_after: Option<usize>,
    /// The earlier request whose prompt and completion this one continues.
    pub(super) follows: Option<usize>,
}

pub(super) fn setup(dice: &mut Dice, plant: PlantedFault) -> Setup {
    let width = dice.between(1, 15) as usize;
    let fake = FakeOptions {
        full_blocks: dice.between(6, 24) as usize,
        window_blocks: dice.between(8, 24) as usize,
        reach: dice.between(1, 150) as u32,
        rows: dice.between(48, 200) as usize,
        max_logits_rows: dice.between(24, 64) as usize,
        max_positions: 600,
        peak: dice.between(0, 6) as f32,
        cost: COSTS[dice.between(0, 3) as usize],
        ..FakeOptions::default()
    };
    let drafter = (!dice.one_in(5)).then(|| (width, dice.between(1, 160) as u32, dice.share()));
    let options = EngineOptions {
        max_num_seqs: dice.between(1, 9) as usize,
        prefill_chunk: dice.between(1, 120) as usize,
        mixed_prefill_tokens: dice.between(1, 80) as usize,
        queue: 1000,
        kv_offload: dice
            .one_in(3)
            .then(|| Arc::new(FakeOffloadStore::new(dice.between(0, 9))) as Arc<_>),
        ..EngineOptions::default()
    };
    Setup { fake, drafter, options, plant }
}

pub(super) fn arrivals(dice: &mut Dice, setup: &Setup, longest: u64) -> Vec<Arrival> {
    let count = dice.between(3, 14);
    let prefixes: Vec<Vec<Token>> = (0..3)
        .map(|_| {
            let len = dice.between(1, longest - 1);
            words(dice, setup, len)
        })
        .collect();
    let mut step = 0;
    (0..count)
        .map(|i| {
            step += dice.between(0, 12);
            let prefix = &prefixes[dice.between(0, 2) as usize];
            let kept = dice.between(1, prefix.len() as u64) as usize;
            let mut prompt = prefix[..kept].to_vec();
            let more = dice.between(0, 40).min(longest - 1 - kept as u64);
            prompt.extend(words(dice, setup, more));
            Arrival {
                step,
                ask: ask(dice, setup, prompt, longest),
                cancelled_after: dice.one_in(6).then(|| dice.between(0, 30)),
                leaves_after: dice.one_in(8).then(|| dice.between(1, 20) as usize),
                follows: (i > 0 && dice.one_in(3)).then(|| dice.between(0, i - 1) as usize),
            }
        })
        .collect()
}

fn words(dice: &mut Dice, setup: &Setup, count: u64) -> Vec<Token> {
    (0..count).map(|_| Token(dice.between(0, setup.fake.vocab as u64 - 1) as u32)).collect()
}

fn ask(dice: &mut Dice, setup: &Setup, prompt: Vec<Token>, longest: u64) -> TestRequest {
    let vocab = setup.fake.vocab as u64;
    let token = |dice: &mut Dice| Token(dice.between(0, vocab - 1) as u32);
    let room = longest - prompt.len() as u64;
    let sampling = Sampling {
        temperature: if dice.one_in(2) { 0.0 } else { dice.between(1, 20) as f32 / 10.0 },
        top_k: if dice.one_in(2) { 0 } else { dice.between(1, vocab) as u32 },
        top_p: if dice.one_in(2) { 1.0 } else { dice.share() as f32 },
        min_p: if dice.one_in(4) { 0.1 } else { 0.0 },
        repetition_penalty: if dice.one_in(4) { 1.3 } else { 1.0 },
        frequency_penalty: if dice.one_in(4) { 0.4 } else { 0.0 },
        presence_penalty: if dice.one_in(4) { 0.7 } else { 0.0 },
        logit_bias: if dice.one_in(6) { vec![(token(dice), 3.0)] } else { Vec::new() },
        seed: dice.between(0, u64::MAX - 1),
    };
    let grammar = match dice.between(0, 7) {
        0 => Grammar::Even,
        1 => Grammar::Forced(dice.between(0, 9) as usize, vec![token(dice), token(dice)]),
        _ => Grammar::Free,
    };
    let max_tokens = dice.between(1, room.min(90)) as u32;
    TestRequest {
        prompt,
        sampling,
        stop: if dice.one_in(2) { vec![token(dice)] } else { Vec::new() },
        max_tokens,
        max_draft: dice.one_in(4).then(|| dice.between(0, 6) as u32),
        logprobs: dice.one_in(4).then_some(2),
        grammar,
        deadline_ms: dice.one_in(8).then(|| dice.between(0, 40)),
        priority: dice.between(0, 2) as i32 - 1,
        min_tokens: if dice.one_in(4) { dice.between(0, u64::from(max_tokens)) as u32 } else { 0 },
        group: dice.one_in(2).then(|| dice.between(0, 1)),
    }
}
