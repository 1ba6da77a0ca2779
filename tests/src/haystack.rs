//! A model with hand-made weights that passes a needle-in-a-haystack test exactly at any length: a
//! needle is a token for a key and a value, and the answer to a key's question token is the value.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use muse_core::Result;
use muse_core::contract::{
    BlockCount, CheckpointSpec, GenerationDefaults, KvType, LayerSpec, ModelSizes, SeqId,
    TensorInfo, TextSpec, Token, Vocabulary, WeightSource, WeightView,
};
use muse_core::engine::{EngineCore, EngineOptions};
use muse_core::hash::hash64;
use muse_core::model::Model;
use muse_core::quant::Format;
use muse_cpu::{Cpu, CpuOptions};
use muse_kv::{Pool, PoolOptions};

use crate::sim::{TestRequest, client};

const HIDDEN: usize = 64;
const HEAD: usize = 32;
const KEYS: usize = 4;
const VALUES: usize = 8;
const VOCAB: usize = 256;
const WINDOW: u32 = 64;
/// Tokens of a pass.
const ROWS: usize = 2048;

/// First dimensions in the residual stream of: keys of needles, keys in questions, values, answers,
/// hay.
const KEY: usize = 0;
const ASKED: usize = KEY + KEYS;
const VALUE: usize = ASKED + KEYS;
const ANSWER: usize = VALUE + VALUES;
const HAY: usize = ANSWER + VALUES;

/// First token ids of each kind; those of hay start at 0.
const NEEDLES: usize = 128;
const QUESTIONS: usize = NEEDLES + KEYS * VALUES;
const ANSWERS: usize = QUESTIONS + KEYS;

fn needle(key: usize, value: usize) -> Token {
    Token((NEEDLES + key * VALUES + value) as u32)
}

/// The checkpoint: a window layer with rotation that adds nothing, then a layer of full attention
/// without rotation, whose queries match the needles' keys.
pub struct Haystack {
    spec: CheckpointSpec,
    generation: GenerationDefaults,
    tensors: Vec<(TensorInfo, Vec<u8>)>,
}

impl Haystack {
    /// The checkpoint, for this many positions.
    pub fn new(positions: usize) -> Self {
        let text = TextSpec {
            hidden: HIDDEN,
            ffn: HEAD,
            heads: 1,
            kv_heads: 1,
            head_dim: HEAD,
            vocab: VOCAB,
            layers: vec![
                LayerSpec { window: Some(WINDOW), rope: true },
                LayerSpec { window: None, rope: false },
            ],
            norm_eps: 1e-5,
            post_norm_eps: 1e-8,
            rope_theta: 500_000.0,
            logit_scale: 1.0,
            logit_softcap: None,
            max_positions: positions,
            image_token: None,
        };
        let mut made = Self {
            spec: CheckpointSpec { text: Some(text), ..CheckpointSpec::default() },
            generation: GenerationDefaults::default(),
            tensors: Vec::new(),
        };
        made.ends();
        made.layer(0, noise, |row, col| noise(col, row + 7), |_, _| 0.0);
        made.layer(
            1,
            |row, col| one(row < KEYS && col == ASKED + row),
            |row, col| one(row < KEYS && col == KEY + row),
            |row, col| one(col < VALUES && row == ANSWER + col),
        );
        made
    }

    fn add(&mut self, name: &str, rows: usize, cols: usize, value: impl Fn(usize, usize) -> f32) {
        let values = (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col)));
        let bytes = values.flat_map(|(row, col)| value(row, col).to_le_bytes()).collect();
        let name = format!("{name}.weight");
        self.tensors.push((TensorInfo { name, format: Format::F32, rows, cols }, bytes));
    }

    fn ends(&mut self) {
        self.add("token_embd", VOCAB, HIDDEN, |token, dim| {
            let needle = (NEEDLES..QUESTIONS).contains(&token).then(|| token - NEEDLES);
            match needle {
                Some(n) => one(dim == KEY + n / VALUES || dim == VALUE + n % VALUES),
                None if token < NEEDLES => {
                    if dim < HAY {
                        0.0
                    } else {
                        noise(token, dim)
                    }
                }
                None if token < ANSWERS => one(dim == ASKED + token - QUESTIONS),
                None => one(dim == HAY),
            }
        });
        self.add("output_norm", 1, HIDDEN, |_, _| 1.0);
        self.add("output", VOCAB, HIDDEN, |token, dim| {
            10.0 * one((ANSWER..HAY).contains(&dim) && token == ANSWERS + dim - ANSWER)
        });
    }

    fn layer(
        &mut self,
        layer: usize,
        q: fn(usize, usize) -> f32,
        k: fn(usize, usize) -> f32,
        out: fn(usize, usize) -> f32,
    ) {
        let mut add = |part: &str, rows, cols, value: fn(usize, usize) -> f32| {
            self.add(&format!("blk.{layer}.{part}"), rows, cols, value);
        };
        add("attn_q", HEAD, HIDDEN, q);
        add("attn_k", HEAD, HIDDEN, k);
        add("attn_v", HEAD, HIDDEN, |row, col| one(row < VALUES && col == VALUE + row));
        add("attn_gate", HEAD, HIDDEN, |_, _| 0.0);
        add("attn_output", HIDDEN, HEAD, out);
        // A match scores 45 more than hay: e^45 is far above any number of positions.
        add("attn_q_norm", 1, HEAD, |_, _| 8.0);
        add("attn_k_norm", 1, HEAD, |_, _| 1.0);
        for norm in ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"] {
            add(norm, 1, HIDDEN, |_, _| 1.0);
        }
        add("ffn_gate", HEAD, HIDDEN, |_, _| 0.0);
        add("ffn_up", HEAD, HIDDEN, |_, _| 0.0);
        add("ffn_down", HIDDEN, HEAD, |_, _| 0.0);
    }
}

fn one(is: bool) -> f32 {
    f32::from(u8::from(is))
}

fn noise(a: usize, b: usize) -> f32 {
    (hash64(a as u64, b as u64) % 2001) as f32 / 1000.0 - 1.0
}

impl WeightSource for Haystack {
    fn spec(&self) -> &CheckpointSpec {
        &self.spec
    }

    fn generation(&self) -> &GenerationDefaults {
        &self.generation
    }

    fn vocabulary(&self) -> Result<Option<Vocabulary>> {
        Ok(None)
    }

    fn tensors(&self) -> &[TensorInfo] {
        // The model reads tensors by name and lists none.
        &[]
    }

    fn weight(&self, name: &str) -> Result<WeightView<'_>> {
        let found = self.tensors.iter().find(|(info, _)| info.name == name);
        let (info, bytes) = found.unwrap_or_else(|| panic!("the model asks for {name}"));
        let TensorInfo { format, rows, cols, .. } = *info;
        Ok(WeightView { name: &info.name, format, rows, cols, bytes: Cow::Borrowed(bytes) })
    }
}

/// The answer to the question for one needle.
#[derive(Clone, Debug)]
pub struct Found {
    /// Position of the needle.
    pub position: usize,
    /// The token that should come.
    pub expected: Token,
    /// The token that came.
    pub answer: Token,
    /// Its log-probability.
    pub logprob: f32,
    /// Positions of the prompt that were cached.
    pub cached: u32,
    /// How long the answer took.
    pub took: Duration,
}

/// Hides needles at the start, in the middle and at the end of `positions` tokens and asks for
/// each: a prompt that fills all positions but the answer's.
pub fn search(positions: usize, seed: u64, threads: Option<usize>) -> Result<Vec<Found>> {
    let mut hay: Vec<Token> = (0..positions as u64 - 2)
        .map(|i| Token((hash64(seed, i) % NEEDLES as u64) as u32))
        .collect();
    let hidden = [0, hay.len() / 2 + 1, hay.len() - 1];
    // Each needle has another value, so that finding the wrong one is noticed.
    let value = |key: usize| (hash64(seed + 1, 0) as usize + 3 * key) % VALUES;
    for (key, position) in hidden.into_iter().enumerate() {
        hay[position] = needle(key, value(key));
    }
    let mut engine = engine(positions, threads)?;
    let clock = Instant::now();
    let mut found = Vec::new();
    for (key, position) in hidden.into_iter().enumerate() {
        let question = Token((QUESTIONS + key) as u32);
        let prompt = [&hay[..], &[question]].concat();
        let request = TestRequest { logprobs: Some(0), ..TestRequest::greedy(prompt, 1) };
        let (client, sink) = client(None);
        let before = clock.elapsed();
        engine.submit(SeqId(key as u64), request.request(VOCAB), sink, before)?;
        while engine.step(&|| clock.elapsed())? {}
        let received = client.lock().expect("no client panics");
        found.push(Found {
            position,
            expected: Token((ANSWERS + value(key)) as u32),
            answer: received.tokens[0].token,
            logprob: received.tokens[0].logprob,
            cached: received.done[0].usage.cached,
            took: clock.elapsed() - before,
        });
    }
    Ok(found)
}

fn engine(positions: usize, threads: Option<usize>) -> Result<EngineCore<Cpu>> {
    let backend = std::sync::Arc::new(Cpu::new(CpuOptions { threads })?);
    let window = (WINDOW as usize + ROWS).div_ceil(64) + 4;
    let pool = PoolOptions {
        blocks: BlockCount { full: positions.div_ceil(64) + 2, window },
        window_reach: WINDOW - 1,
        max_step_tokens: ROWS as u32,
        ..PoolOptions::default()
    };
    let sizes = ModelSizes {
        kv: KvType::Bf16,
        blocks: pool.blocks,
        max_num_seqs: 1,
        max_num_batched_tokens: ROWS,
        max_logits_rows: 1,
    };
    let source = Haystack::new(positions);
    let model = Model::new(backend.clone(), &source, &sizes, &[], &mut |_, _| {})?;
    let options = EngineOptions { max_num_seqs: 1, ..EngineOptions::default() };
    EngineCore::new(backend, Box::new(model), None, Box::new(Pool::new(pool)), &options)
}
