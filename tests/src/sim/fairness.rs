//! Fairness under load: choices of one request share its turn, and priorities starve nobody.

use std::time::Duration;

use muse_core::contract::{SeqId, Token};
use muse_core::engine::EngineOptions;
use muse_testkit::fake::FakeOptions;

use super::generate::Random;
use super::plant::PlantedFault;
use super::test_engine::{Client, Setup, TestEngine, TestRequest, client};

/// Time of a step on the engine's clock.
const STEP: Duration = Duration::from_secs(1);
/// Steps that a high priority is worth at most, twice: it counts for one request and against
/// another.
const MAX_PRIORITY_CREDITS: u64 = 2 * 60;
/// Steps of waiting that another choice of the same request is worth.
const GROUP_PENALTY: u64 = 30;

/// A fault that the simulation must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfair {
    /// None: the engine as it is.
    Nothing,
    /// Choices are scheduled like requests of different clients.
    NoGroups,
    /// Waiting time never counts: the engine's clock stands still.
    NoAgeing,
}

/// An engine, its clock and its clients.
struct Load {
    engine: TestEngine,
    setup: Setup,
    fault: Unfair,
    step: u64,
    clients: Vec<Running>,
}

struct Running {
    client: Client,
    submitted: u64,
    first_token: Option<u64>,
}

impl Load {
    fn new(setup: Setup, fault: Unfair) -> Result<Self, String> {
        let engine = setup.build().map_err(|error| format!("setup: {error}"))?;
        Ok(Self { engine, setup, fault, step: 0, clients: Vec::new() })
    }

    fn now(&self) -> Duration {
        if self.fault == Unfair::NoAgeing { Duration::ZERO } else { STEP * self.step as u32 }
    }

    /// Submits a request. Returns its index.
    fn submit(&mut self, mut request: TestRequest) -> Result<usize, String> {
        if self.fault == Unfair::NoGroups {
            request.group = None;
        }
        let (client, sink) = client(None);
        let id = SeqId(self.clients.len() as u64 + 1);
        let (request, now) = (request.request(self.setup.fake.vocab), self.now());
        self.engine.core.submit(id, request, sink, now).map_err(|error| error.to_string())?;
        self.clients.push(Running { client, submitted: self.step, first_token: None });
        Ok(self.clients.len() - 1)
    }

    fn run_step(&mut self) -> Result<(), String> {
        self.step += 1;
        let now = self.now();
        self.engine.core.step(&|| now).map_err(|error| error.to_string())?;
        for i in 0..self.clients.len() {
            if self.clients[i].first_token.is_none() && self.tokens(i) > 0 {
                self.clients[i].first_token = Some(self.step);
            }
        }
        Ok(())
    }

    fn tokens(&self, i: usize) -> usize {
        self.clients[i].client.lock().expect("no client panics").tokens.len()
    }

    fn is_done(&self, i: usize) -> bool {
        !self.clients[i].client.lock().expect("no client panics").done.is_empty()
    }

    /// Steps that a request waited for its first token, so far if it has none.
    fn waited(&self, i: usize) -> u64 {
        self.clients[i].first_token.unwrap_or(self.step) - self.clients[i].submitted
    }
}

fn setup(random: &mut Random) -> Setup {
    let slots = random.between(2, 8) as usize;
    // Enough for every sequence, or so little that choices preempt one another.
    let blocks = if random.one_in(3) { slots + 6 } else { 16 * slots };
    let fake = FakeOptions {
        full_blocks: blocks,
        window_blocks: blocks + 4,
        reach: 20,
        max_positions: 600,
        ..FakeOptions::default()
    };
    let options = EngineOptions {
        max_num_seqs: slots,
        prefill_chunk: 64,
        mixed_prefill_tokens: 64,
        ..EngineOptions::default()
    };
    let drafter = random.one_in(2).then_some((5, 40, 0.6));
    Setup { fake, drafter, options, plant: PlantedFault::Nothing }
}

fn greedy(random: &mut Random, prompt: u64, max_tokens: u64) -> TestRequest {
    let token = |random: &mut Random| Token(random.between(0, 60) as u32);
    TestRequest::greedy((0..prompt).map(|_| token(random)).collect(), max_tokens as u32)
}

/// Many long choices of one request fill the engine; then other clients come. Each must get its
/// first token in the step after it came, and one in every step from then on.
pub fn choices_share_a_turn(seed: u64, fault: Unfair) -> Result<(), String> {
    let mut random = Random::new(seed);
    let setup = setup(&mut random);
    let slots = setup.options.max_num_seqs;
    let mut load = Load::new(setup, fault)?;
    let choices = random.between(slots as u64, 16);
    let long = TestRequest { group: Some(1), ..greedy(&mut random, 10, 400) };
    for _ in 0..choices {
        load.submit(long.clone())?;
    }
    for _ in 0..random.between(1, 350) {
        load.run_step()?;
    }
    let others = random.between(1, slots as u64 - 1).min(3);
    let mut singles = Vec::new();
    for i in 0..others {
        let (prompt, tokens) = (random.between(1, 16), random.between(5, 30));
        let group = random.one_in(2).then_some(2 + i);
        let request = TestRequest { group, ..greedy(&mut random, prompt, tokens) };
        singles.push(load.submit(request)?);
    }
    for _ in 0..30 {
        load.run_step()?;
        for &i in &singles {
            let expect = (load.step - load.clients[i].submitted) as usize;
            if !load.is_done(i) && load.tokens(i) < expect {
                let tokens = load.tokens(i);
                return Err(format!("request {i} has {tokens} tokens after {expect} steps"));
            }
        }
    }
    Ok(())
}

/// Clients that keep the engine full, some with many choices, some with the highest priority. No
/// request may wait longer than its priority and its place among its choices explain.
pub fn priorities_starve_nobody(seed: u64, fault: Unfair) -> Result<(), String> {
    let mut random = Random::new(seed);
    let setup = setup(&mut random);
    let slots = setup.options.max_num_seqs as u64;
    let mut load = Load::new(setup, fault)?;
    let mut busy: Vec<(usize, i32)> = Vec::new();
    let mut ordinary = Vec::new();
    let arrives = random.between(5, 60);
    // As many choices wait at a time as there are slots.
    let choices = random.between(1, 3);
    let bound = MAX_PRIORITY_CREDITS + choices * GROUP_PENALTY + 200;
    for step in 0..arrives + bound + 100 {
        busy.retain(|&(i, _)| !load.is_done(i));
        while busy.len() < 2 * slots as usize {
            let tokens = random.between(5, 25);
            let request = TestRequest { priority: i32::MAX, ..greedy(&mut random, 4, tokens) };
            busy.push((load.submit(request)?, i32::MAX));
        }
        if step == arrives {
            let priority = if random.one_in(2) { i32::MIN } else { 0 };
            for _ in 0..choices {
                let request =
                    TestRequest { priority, group: Some(1), ..greedy(&mut random, 8, 20) };
                ordinary.push(load.submit(request)?);
            }
        }
        load.run_step()?;
        for &i in &ordinary {
            if load.waited(i) > bound {
                return Err(format!("request {i} waits for more than {bound} steps"));
            }
        }
    }
    let starved = ordinary.iter().filter(|&&i| load.clients[i].first_token.is_none()).count();
    if starved > 0 { Err(format!("{starved} requests never started")) } else { Ok(()) }
}
