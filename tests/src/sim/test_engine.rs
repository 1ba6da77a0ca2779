//! An engine on the fakes, its requests, and what its clients receive.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use muse_core::Result;
use muse_core::contract::{
    BlockCount, Constraint, ContentHash, Done, Drafter, Event, GroupId, KvPool, Patches, Request,
    Sampled, Sampling, Segment, Sink, TargetModel, Token,
};
use muse_core::engine::{EngineCore, EngineOptions};
use muse_kv::{Pool, PoolOptions};
use muse_testkit::fake::{
    DrafterLog, EncoderLog, EvenTokens, FakeBackend, FakeDrafter, FakeEncoder, FakeModel,
    FakeOptions, FakeTarget, Forced,
};

use super::plant::PlantedFault;

/// What a simulated engine is made of.
#[derive(Clone)]
pub struct Setup {
    /// The model and its KV blocks.
    pub fake: FakeOptions,
    /// Width, reach and hit rate of the drafter, if there is one.
    pub drafter: Option<(usize, u32, f64)>,
    /// How the engine runs.
    pub options: EngineOptions,
    /// The planted fault.
    pub plant: PlantedFault,
}

impl Setup {
    /// An engine with many KV blocks and a good drafter.
    pub fn with_ample_blocks() -> Self {
        Self {
            fake: FakeOptions::default(),
            drafter: Some((7, 70, 0.8)),
            options: EngineOptions { prefill_chunk: 100, ..EngineOptions::default() },
            plant: PlantedFault::Nothing,
        }
    }
}

/// An engine and the handles to what it is made of.
pub struct TestEngine {
    /// The engine.
    pub core: EngineCore<FakeBackend>,
    /// Its device.
    pub backend: Arc<FakeBackend>,
    /// What the drafter found in its context.
    pub log: Arc<DrafterLog>,
    /// What the vision encoder did.
    pub encoded: Arc<EncoderLog>,
    /// The pass of the target to fail at.
    pub fail_at: Arc<AtomicU64>,
    /// The model, for its clock.
    pub model: FakeModel,
}

/// The parts of an engine, for those who join them otherwise.
pub struct Parts {
    /// The device.
    pub backend: Arc<FakeBackend>,
    /// The model.
    pub target: Box<dyn TargetModel<FakeBackend>>,
    /// The drafter.
    pub drafter: Option<Box<dyn Drafter<FakeBackend>>>,
    /// The KV blocks.
    pub pool: Box<dyn KvPool>,
    /// What the drafter found in its context.
    pub log: Arc<DrafterLog>,
    /// The pass of the target to fail at.
    pub fail_at: Arc<AtomicU64>,
    /// The model, for its clock.
    pub model: FakeModel,
}

impl Setup {
    /// Builds the parts.
    pub fn parts(&self) -> Result<Parts> {
        let backend = Arc::new(FakeBackend::default());
        let model = FakeModel::new(self.fake);
        let target = FakeTarget::new(Arc::clone(&backend), model.clone())?;
        let fail_at = target.fail_at();
        let drafter = self.drafter.map(|(width, reach, hit)| {
            FakeDrafter::new(Arc::clone(&backend), model.clone(), width, reach, hit)
        });
        let log = drafter.as_ref().map(FakeDrafter::log).unwrap_or_default();
        let (width, reach) = self.drafter.map_or((0, 0), |(width, reach, _)| (width, reach));
        let pool = PoolOptions {
            blocks: BlockCount { full: self.fake.full_blocks, window: self.fake.window_blocks },
            window_reach: self.plant.reach(self.fake.reach.max(reach)),
            max_step_tokens: self.options.prefill_chunk.min(self.fake.rows).max(width + 1) as u32,
            offload_root: self.options.kv_offload.as_ref().map(|store| store.root()),
            ..PoolOptions::default()
        };
        let pool = Pool::new(pool);
        Ok(Parts {
            backend,
            target: self.plant.target(target),
            drafter: drafter.map(|drafter| self.plant.drafter(drafter)),
            pool: self.plant.pool(pool),
            log,
            fail_at,
            model,
        })
    }

    /// Builds the engine.
    pub fn build(&self) -> Result<TestEngine> {
        let Parts { backend, target, drafter, pool, log, fail_at, model } = self.parts()?;
        let device = Arc::clone(&backend);
        let encoder = FakeEncoder::new(Arc::clone(&device), model.clone());
        let encoded = encoder.log();
        let core = EngineCore::new(device, target, drafter, pool, &self.options)?
            .with_encoder(Box::new(encoder));
        Ok(TestEngine { core, backend, log, encoded, fail_at, model })
    }
}

/// A request that can be made again.
#[derive(Clone, Debug)]
pub struct TestRequest {
    /// The prompt.
    pub prompt: Vec<Token>,
    /// A picture in the prompt: how many tokens stand before it, its number, its rows.
    pub picture: Option<(usize, u64, usize)>,
    /// How tokens are sampled.
    pub sampling: Sampling,
    /// Tokens that end it.
    pub stop: Vec<Token>,
    /// The most tokens.
    pub max_tokens: u32,
    /// Draft tokens of every verify.
    pub max_draft: Option<u32>,
    /// Log-probabilities.
    pub logprobs: Option<u32>,
    /// Grammar.
    pub grammar: Grammar,
    /// Milliseconds until it ends: one per step.
    pub deadline_ms: Option<u64>,
    /// See [`Request::priority`].
    pub priority: i32,
    /// See [`Request::min_tokens`].
    pub min_tokens: u32,
    /// See [`Request::group`].
    pub group: Option<u64>,
}

/// Hash of the picture of this number.
pub(super) fn picture_hash(number: u64) -> ContentHash {
    let mut hash = [7; 16];
    hash[..8].copy_from_slice(&number.to_le_bytes());
    ContentHash(hash)
}

/// The fake grammars.
#[derive(Clone, Debug)]
pub enum Grammar {
    /// None.
    Free,
    /// [`EvenTokens`].
    Even,
    /// [`Forced`] after so many free tokens.
    Forced(usize, Vec<Token>),
}

impl TestRequest {
    /// A greedy request.
    pub fn greedy(prompt: Vec<Token>, max_tokens: u32) -> Self {
        Self {
            prompt,
            picture: None,
            sampling: Sampling::default(),
            stop: Vec::new(),
            max_tokens,
            max_draft: None,
            logprobs: None,
            grammar: Grammar::Free,
            deadline_ms: None,
            priority: 0,
            min_tokens: 0,
            group: None,
        }
    }

    /// The grammar, at its beginning.
    pub fn constraint(&self, vocab: usize) -> Option<Box<dyn Constraint>> {
        match &self.grammar {
            Grammar::Free => None,
            Grammar::Even => Some(Box::new(EvenTokens::new(vocab))),
            Grammar::Forced(free, script) => {
                Some(Box::new(Forced::new(vocab, *free, script.clone())))
            }
        }
    }

    /// Positions of the prompt.
    pub fn prompt_len(&self) -> usize {
        self.prompt.len() + self.picture.map_or(0, |(_, _, rows)| rows)
    }

    fn segments(&self) -> Vec<Segment> {
        let Some((before, number, rows)) = self.picture else {
            return vec![Segment::Tokens(self.prompt.clone())];
        };
        let (before, behind) = self.prompt.split_at(before);
        let (grid_t, grid_h, grid_w) = (1, 2, 2 * rows);
        let patches =
            Patches { values: Arc::default(), grid_t, grid_h, grid_w, hash: picture_hash(number) };
        vec![
            Segment::Tokens(before.to_vec()),
            Segment::Patches(patches),
            Segment::Tokens(behind.to_vec()),
        ]
    }

    /// The request.
    pub fn request(&self, vocab: usize) -> Request {
        Request {
            prompt: self.segments(),
            sampling: self.sampling.clone(),
            stop: self.stop.clone(),
            max_tokens: Some(self.max_tokens),
            max_draft: self.max_draft,
            logprobs: self.logprobs,
            constraint: self.constraint(vocab),
            deadline: self.deadline_ms.map(std::time::Duration::from_millis),
            priority: self.priority,
            min_tokens: self.min_tokens,
            group: self.group.map(GroupId),
        }
    }
}

/// What a client received.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// Its tokens.
    pub tokens: Vec<Sampled>,
    /// `done` of the prefill events.
    pub prefill: Vec<u32>,
    /// The last events; there must be one.
    pub done: Vec<Done>,
    /// Whether an event came after the last one.
    pub late: bool,
    /// Tokens after which the client leaves.
    pub leaves_after: Option<usize>,
}

/// A client.
pub type Client = Arc<Mutex<Received>>;

/// A client and its sink.
pub fn client(leaves_after: Option<usize>) -> (Client, Sink) {
    let received = Arc::new(Mutex::new(Received { leaves_after, ..Received::default() }));
    let shared = Arc::clone(&received);
    let sink = move |event| {
        let mut received = shared.lock().expect("no client panics");
        received.late |= !received.done.is_empty();
        match event {
            Event::Prefill { done, .. } => received.prefill.push(done),
            Event::Token(sampled) => received.tokens.push(sampled),
            Event::Done(done) => received.done.push(done),
        }
        match received.leaves_after {
            Some(n) if received.tokens.len() >= n => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    };
    (received, Box::new(sink))
}

/// Ids of sampled tokens.
pub fn ids(tokens: &[Sampled]) -> Vec<Token> {
    tokens.iter().map(|sampled| sampled.token).collect()
}
