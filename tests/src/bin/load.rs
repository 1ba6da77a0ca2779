//! Measures the engine under load: aggregate tokens a second at 1, 8 and 32 sequences, drafting
//! always, never and by the engine's choice in turn, and on muse-nano the accepted lengths by kind
//! of text and the same choice for 1 to 32 streams of each kind. `load [--model PATH [--draft PATH]] [--tokens N] [--rounds N] [--threads N]`; without a
//! model it takes muse-nano, for a model without a drafter one that replays what the model says.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use muse_core::contract::{
    BlockCount, Done, Drafter, Footprint, KvType, ModelSizes, SeqId, TargetModel, Token,
    WeightSource,
};
use muse_core::engine::{EngineCore, EngineOptions};
use muse_core::hash::hash64;
use muse_core::model::{Model, ModelFootprint};
use muse_cpu::{Cpu, CpuOptions};
use muse_dflash::Dflash;
use muse_kv::{Pool, PoolOptions};
use muse_testkit::nano_dir;
use muse_tests::chats::{Chat, STOP, chats};
use muse_tests::replay::{Replay, Script};
use muse_tests::sim::{Client, Received, TestRequest, client, ids};
use muse_weights::Checkpoint;

/// Sequences that run together.
const STREAMS: [usize; 5] = [1, 2, 4, 8, 32];
/// Golden chats by kind of text.
const KINDS: [(&str, &[&str]); 3] =
    [("prose", &["story", "who", "unknown"]), ("code", &["code", "code2"]), ("JSON", &["json"])];
const TOGETHER: [usize; 3] = [1, 8, 32];
const PROMPT: usize = 16;
const PAGES_EACH: usize = 12;
/// Rows of a pass.
const ROWS: usize = 512;
/// Draft tokens of a block, where the drafter does not say.
const WIDTH: usize = 15;
/// Draft tokens for requests that leave the length to the engine, or do not.
const MODES: [(&str, Option<u32>); 3] =
    [("never", Some(0)), ("always", Some(WIDTH as u32)), ("by choice", None)];
/// Chances of a replayed draft.
const HITS: [f64; 4] = [0.0, 0.5, 0.8, 0.95];

struct Options {
    model: Option<PathBuf>,
    draft: Option<PathBuf>,
    tokens: u32,
    rounds: usize,
    threads: Option<usize>,
}

fn main() -> Result<()> {
    let mut options = Options { model: None, draft: None, tokens: 64, rounds: 5, threads: None };
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next().with_context(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--model" => options.model = Some(PathBuf::from(value)),
            "--draft" => options.draft = Some(PathBuf::from(value)),
            "--tokens" => options.tokens = value.parse().context("--tokens needs a number")?,
            "--rounds" => options.rounds = value.parse().context("--rounds needs a number")?,
            "--threads" => {
                options.threads = Some(value.parse().context("--threads needs a number")?)
            }
            _ => bail!(
                "{flag} is not known, expected --model, --draft, --tokens, --rounds and --threads"
            ),
        }
    }
    ensure!(options.tokens > 1 && options.rounds > 0, "nothing is measured by so little");
    let nano = options.model.is_none();
    let model = options.model.unwrap_or_else(|| nano_dir().join("target"));
    let draft = options.draft.or_else(|| nano.then(|| nano_dir().join("assistant")));
    let drafting = draft.as_deref().map_or(Drafting::Replay, Drafting::File);
    let mut bench = Bench::new(&model, drafting, options.threads)?;
    bench.throughput(options.tokens)?;
    if nano {
        bench.choose_on_chats(options.rounds)?;
        bench.kinds()?;
        let without = Bench::new(&model, Drafting::None, options.threads)?;
        compare_streams([without, bench], options.rounds)?;
    } else {
        bench.choose_on_replays(options.tokens, options.rounds)?;
    }
    Ok(())
}

/// What drafts.
enum Drafting<'a> {
    None,
    /// Recorded completions, wrong at a given rate.
    Replay,
    File(&'a Path),
}

/// An engine that measures.
struct Bench {
    engine: EngineCore<Cpu>,
    /// What the drafter replays, where it does.
    script: Option<Arc<Mutex<Script>>>,
    submitted: u64,
}

impl Bench {
    fn new(target: &Path, drafting: Drafting<'_>, threads: Option<usize>) -> Result<Self> {
        let backend = Arc::new(Cpu::new(CpuOptions { threads })?);
        let target = Checkpoint::open(target)?;
        let spec = target.spec().text.clone().context("no text model")?;
        let most = TOGETHER[2];
        let blocks = most * PAGES_EACH + 32;
        let sizes = ModelSizes {
            kv: KvType::Bf16,
            blocks: BlockCount { full: blocks, window: blocks },
            max_num_seqs: most,
            max_num_batched_tokens: ROWS,
            max_logits_rows: 0,
        };
        let mut script = None;
        let drafter: Option<Box<dyn Drafter<Cpu>>> = match drafting {
            Drafting::None => None,
            Drafting::File(path) => {
                let source = Checkpoint::open(path)?;
                let progress = &mut |_, _| {};
                Some(Box::new(Dflash::new(backend.clone(), &source, &spec, &sizes, progress)?))
            }
            Drafting::Replay => {
                let (replay, replayed) = Replay::new(&*backend, WIDTH, spec.hidden, spec.vocab)?;
                script = Some(replayed);
                Some(Box::new(replay))
            }
        };
        let (width, reach, captured) = drafter.as_ref().map_or((0, 0, &[][..]), |drafter| {
            (drafter.width(), drafter.window_reach(), drafter.captured_layers())
        });
        let sizes = ModelSizes { max_logits_rows: most * (width + 1), ..sizes };
        let model = Model::new(backend.clone(), &target, &sizes, captured, &mut |_, _| {})?;
        println!(
            "{} layers of width {}, limits {:?}",
            spec.layers.len(),
            spec.hidden,
            model.limits()
        );
        let footprint = ModelFootprint { spec: &spec, captured_layers: captured.len() };
        let pool = Pool::new(PoolOptions {
            blocks: sizes.blocks,
            window_reach: reach.max(footprint.window_reach()),
            max_step_tokens: ROWS as u32,
            ..PoolOptions::default()
        });
        let options = EngineOptions { max_num_seqs: most, ..EngineOptions::default() };
        let engine = EngineCore::new(backend, Box::new(model), drafter, Box::new(pool), &options)?;
        Ok(Self { engine, script, submitted: 0 })
    }

    /// Runs requests to their end. Returns what each received.
    fn run(&mut self, requests: &[TestRequest]) -> Result<Vec<Received>> {
        let clock = Instant::now();
        let vocab = self.engine.limits().vocab;
        let mut clients: Vec<Client> = Vec::new();
        for request in requests {
            let (client, sink) = client(None);
            let id = SeqId(self.submitted);
            self.engine.submit(id, request.request(vocab), sink, clock.elapsed())?;
            self.submitted += 1;
            clients.push(client);
        }
        while self.engine.step(&|| clock.elapsed())? {}
        let received = |client: &Client| client.lock().expect("no panic").clone();
        Ok(clients.iter().map(received).collect())
    }

    fn random_request(&self, seed: u64, tokens: u32) -> TestRequest {
        let vocab = self.engine.limits().vocab as u64;
        let token = |p| Token((hash64(seed, p) % vocab) as u32);
        TestRequest::greedy((0..PROMPT as u64).map(token).collect(), tokens)
    }

    fn throughput(&mut self, tokens: u32) -> Result<()> {
        let mut single = 0.0;
        for together in TOGETHER {
            let request = |i| TestRequest { max_draft: Some(0), ..self.random_request(i, tokens) };
            let requests: Vec<TestRequest> = (1..=together as u64).map(request).collect();
            let received = self.run(&requests)?;
            // Prompts are read in one step; from then on all of them decode.
            let said: u32 =
                received.iter().map(|received| received.done[0].usage.completion - 1).sum();
            let took = received.iter().map(|received| received.done[0].timings.decode).max();
            let rate = f64::from(said) / took.unwrap_or_default().as_secs_f64();
            if together == 1 {
                single = rate;
            }
            println!("{together:2} sequences: {rate:8.1} tokens/s together, {:.2}x", rate / single);
        }
        Ok(())
    }

    /// Drafting by choice against always and never, on the golden chats one after the other.
    fn choose_on_chats(&mut self, rounds: usize) -> Result<()> {
        let requests: Vec<TestRequest> =
            chats()[..18].iter().map(|chat| talk(chat.prompt.clone())).collect();
        self.compare("golden chats", &requests, rounds)
    }

    /// The same on what the model says to random prompts, by how often drafts are right.
    fn choose_on_replays(&mut self, tokens: u32, rounds: usize) -> Result<()> {
        let request = self.random_request(1, tokens);
        let plain = TestRequest { max_draft: Some(0), ..request.clone() };
        let received = self.run(std::slice::from_ref(&plain))?;
        let Some(script) = self.script.clone() else {
            return self.compare("the drafter", &[request], rounds);
        };
        for hit in HITS {
            let tokens = [request.prompt.clone(), ids(&received[0].tokens)].concat();
            *script.lock().expect("no panic while it was held") = Script { tokens, hit };
            self.compare(
                &format!("drafts right by {hit}"),
                std::slice::from_ref(&request),
                rounds,
            )?;
        }
        Ok(())
    }

    fn compare(&mut self, name: &str, requests: &[TestRequest], rounds: usize) -> Result<()> {
        let mut rates = [const { Vec::new() }; MODES.len()];
        let mut kept = [(0, 0); MODES.len()];
        for _ in 0..rounds {
            for ((&(_, max_draft), rates), kept) in MODES.iter().zip(&mut rates).zip(&mut kept) {
                let (mut tokens, mut seconds) = (0, 0.0);
                for request in requests {
                    let received = self.run(&[TestRequest { max_draft, ..request.clone() }])?;
                    let Done { usage, timings, .. } = &received[0].done[0];
                    tokens += usage.completion - 1;
                    seconds += timings.decode.as_secs_f64();
                    kept.0 += usage.verifies.len();
                    kept.1 += usage.accepted();
                }
                rates.push(f64::from(tokens) / seconds);
            }
        }
        println!("{name}, median of {rounds} rounds:");
        let medians = rates.map(median);
        for (((mode, _), rate), (verifies, kept)) in MODES.iter().zip(medians).zip(kept) {
            println!("  drafting {mode}: {rate:.1} tokens/s, {verifies} verifies, {kept} kept");
        }
        let [never, always, choice] = medians;
        println!("  by choice: {:.3} of the better", choice / never.max(always));
        Ok(())
    }

    /// Tokens per second of so many streams together, from the first request to the last token.
    fn rate_of(&mut self, names: &[&str], streams: usize, max_draft: Option<u32>) -> Result<f64> {
        let chats = chats();
        let of_kind = chats.iter().filter(|chat| names.contains(&chat.name.as_str())).cycle();
        let request = |chat: &Chat| TestRequest { max_draft, ..talk(chat.prompt.clone()) };
        let requests: Vec<TestRequest> = of_kind.take(streams).map(request).collect();
        let began = Instant::now();
        // One stream alone is over in milliseconds.
        let repeats = STREAMS[STREAMS.len() - 1] / streams;
        let mut tokens = 0;
        for _ in 0..repeats {
            let received = self.run(&requests)?;
            tokens += received.iter().map(|received| received.tokens.len()).sum::<usize>();
        }
        Ok(tokens as f64 / began.elapsed().as_secs_f64())
    }

    /// Tokens a verify by kind of text, with whole blocks.
    fn kinds(&mut self) -> Result<()> {
        for (kind, names) in KINDS {
            let chats = chats();
            let of_kind = chats.iter().filter(|chat| names.contains(&chat.name.as_str()));
            let whole = |request| TestRequest { max_draft: Some(WIDTH as u32), ..request };
            let requests: Vec<TestRequest> =
                of_kind.map(|chat| whole(talk(chat.prompt.clone()))).collect();
            let received = self.run(&requests)?;
            let accepted: Vec<u32> = received
                .iter()
                .flat_map(|received| received.done[0].usage.accepted_by_verify())
                .collect();
            let (verifies, kept) = (accepted.len(), accepted.iter().sum::<u32>());
            println!(
                "{kind}: {:.2} tokens a verify over {verifies} verifies",
                f64::from(kept) / verifies as f64 + 1.0
            );
        }
        Ok(())
    }
}

/// Tokens per second of several streams of one kind of text: without a drafter, always drafting whole
/// blocks, and drafting what pays.
fn compare_streams([mut without, mut with]: [Bench; 2], rounds: usize) -> Result<()> {
    println!("streams, tokens/s without a drafter, always drafting, by choice, of the better:");
    for (kind, names) in KINDS {
        for streams in STREAMS {
            let mut rates = [const { Vec::new() }; 3];
            for _ in 0..rounds {
                for (i, rates) in rates.iter_mut().enumerate() {
                    let bench = if i == 0 { &mut without } else { &mut with };
                    let max_draft = (i == 1).then_some(WIDTH as u32);
                    rates.push(bench.rate_of(names, streams, max_draft)?);
                }
            }
            let [never, always, choice] = rates.map(median);
            println!(
                "  {kind:5} {streams:2}: {never:8.1} {always:8.1} {choice:8.1}  {:.3}",
                choice / never.max(always)
            );
        }
    }
    Ok(())
}

/// A chat's next turn.
fn talk(prompt: Vec<Token>) -> TestRequest {
    TestRequest { stop: STOP.to_vec(), ..TestRequest::greedy(prompt, 400) }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
