//! Joins the crates into a running model: the only place that knows which checkpoint goes with
//! which drafter, which backend, and how much memory they get.
// A build without any backend can only say so.
#![cfg_attr(not(feature = "cpu"), allow(dead_code, unused_variables))]

mod ceilings;
mod content;
mod nano;
mod passes;
mod plan;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use muse_atem::{FileTemplate, Grammars, Template, Tokenizer as AtemTokenizer, template_warning};
use muse_core::contract::{
    Backend, Drafter, Engine, KvOffloadStore, KvType, LogitsRequest, PromptTemplate, Sampling,
    TensorInfo, Token, Tokenizer, WeightSource,
};
use muse_core::engine::{self, EngineOptions};
use muse_core::hash::hash64;
use muse_core::model::{BfpPolicy, Model, RoundedWeights};
use muse_core::{Error, Result};
use muse_dflash::Dflash;
use muse_kv::{Pool, PoolOptions};
use muse_weights::Checkpoint;

use crate::spill::SpillFolder;
use crate::{App, ModelCard};
pub use ceilings::{Ceilings, Cost, Work};
pub use content::ContentHashes;
use passes::Line;
pub use passes::Passes;
pub use plan::MemoryPlan;
use plan::Sizes;

/// Names of the backends in this build, the default one first.
pub const BACKENDS: &[&str] = &[
    #[cfg(feature = "cpu")]
    "cpu",
];

/// What to load and how to run it.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// HuggingFace folder or GGUF file; none means the embedded muse-nano with its drafter.
    pub model: Option<PathBuf>,
    /// The drafter's folder or file.
    pub draft: Option<PathBuf>,
    /// A template file that renders conversations instead of the native template.
    pub chat_template: Option<PathBuf>,
    /// The vision tower's GGUF file.
    pub mmproj: Option<PathBuf>,
    /// How K and V are stored, the drafter's too.
    pub kv: KvType,
    /// Rounds the matrices, the drafter's too, to what a Tenstorrent card would hold of them.
    pub weights: Option<BfpPolicy>,
    /// Positions a sequence may have; none means what the checkpoint allows and memory holds.
    pub context: Option<u32>,
    /// Sequences of full length that the cache holds; none means what memory holds, up to
    /// `default_max_parallel`.
    pub parallel: Option<usize>,
    /// Sequences that may run at a time; 0 counts as 1.
    pub default_max_parallel: usize,
    /// How long a step with prompt rows should take at most while others are answered.
    pub target_itl: Option<Duration>,
    /// Threads that compute; none means one a core.
    pub threads: Option<usize>,
    /// Multiplies by activations in f32 where the device would round them: slower, for comparing
    /// with references.
    pub exact: bool,
    /// Draft tokens of every verify, at most the drafter's width; 0 leaves the drafter out. None means
    /// as many as pay.
    pub max_draft: Option<u32>,
    /// Where KV blocks of the K/V cache go that must make way, and the most bytes of them.
    pub spill: Option<(PathBuf, u64)>,
    /// One of [`BACKENDS`]; none means the first.
    pub backend: Option<String>,
    /// Lets no request find the rows that earlier ones left in the cache; excludes `spill`.
    pub cold: bool,
    /// Makes room for the logits of many rows, for [`Loaded::logits`] and [`Loaded::passes`].
    pub logits: bool,
}

/// Hears why an engine stopped for good.
pub type OnFailure = Arc<dyn Fn(&Error) + Send + Sync>;

/// A model that is loaded and does not run yet.
pub struct Loaded {
    /// Facts about it.
    pub card: ModelCard,
    /// Text to tokens, when the checkpoint has a vocabulary.
    pub tokenizer: Option<Arc<dyn Tokenizer>>,
    /// How much memory it takes.
    pub plan: MemoryPlan,
    /// What a pass costs.
    pub work: Work,
    /// What the user should hear of the checkpoint's chat template: that it is not the one that
    /// renders.
    pub template_warning: Option<String>,
    template: Option<Arc<dyn PromptTemplate>>,
    grammars: Option<Arc<Grammars>>,
    sampling: Sampling,
    stop: Vec<Token>,
    parts: Box<dyn Parts>,
}

/// Loads a model. `progress` hears what is being loaded, and how many of its tensors are.
///
/// # Errors
/// [`Error::Invalid`] when paths or options make no sense together, [`Error::Corrupt`] for broken
/// files, [`Error::Exhausted`] when memory cannot hold what was asked for, [`Error::Unsupported`]
/// for what this build lacks.
pub fn load(options: &LoadOptions, progress: &mut dyn FnMut(&str, usize, usize)) -> Result<Loaded> {
    if let Some(path) = &options.mmproj {
        return Err(Error::Unsupported(format!(
            "--mmproj {}: this build does not read pictures yet; leave --mmproj out to chat in text",
            path.display()
        )));
    }
    let files = Files::open(options)?;
    let name = options.backend.as_deref().or(BACKENDS.first().copied()).unwrap_or("none");
    match name {
        #[cfg(feature = "cpu")]
        "cpu" => {
            let threads = options.threads;
            let cpu = muse_cpu::Cpu::new(muse_cpu::CpuOptions { threads })?;
            let cpu = if options.exact { cpu.exact() } else { cpu };
            join(name, cpu, &files, options, progress)
        }
        _ => Err(Error::Unsupported(format!(
            "backend {name} is not in this build, which has {BACKENDS:?}; build muse with its \
             cargo feature"
        ))),
    }
}

/// The checkpoints of a model.
struct Files {
    name: String,
    target: Checkpoint,
    drafter: Option<Checkpoint>,
}

impl Files {
    fn open(options: &LoadOptions) -> Result<Self> {
        let wanted = options.max_draft != Some(0);
        let (name, target, own) = match &options.model {
            Some(path) => (name_of(path), Checkpoint::open(path)?, None),
            None => (nano::NAME.to_owned(), nano::target()?, Some(nano::drafter as fn() -> _)),
        };
        let drafter = match (&options.draft, own) {
            (Some(path), _) if wanted => Some(Checkpoint::open(path)?),
            (None, Some(own)) if wanted => Some(own()?),
            _ => None,
        };
        Ok(Self { name, target, drafter })
    }
}

/// A model's name: the last part of its path that says something.
fn name_of(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = if whole.is_dir() { whole.file_name() } else { whole.file_stem() };
    name.map_or_else(|| "muse".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Refuses to draft more than the drafter can.
fn check_draft(most: Option<u32>, width: u32) -> Result<()> {
    let advice = match (most, width) {
        (Some(1..), 0) => "there is no drafter; name one with --draft".to_owned(),
        (Some(most), _) if most > width => {
            format!("the drafter drafts at most {width} tokens; give 0 to {width}")
        }
        _ => return Ok(()),
    };
    let most = most.unwrap_or_default();
    Err(Error::Invalid(format!("--max-draft is {most}, but {advice}")))
}

fn join<B: Backend>(
    backend_name: &str,
    backend: B,
    files: &Files,
    options: &LoadOptions,
    progress: &mut dyn FnMut(&str, usize, usize),
) -> Result<Loaded> {
    let target = options.weights.map(|mix| RoundedWeights::new(&files.target, mix));
    let source = target.as_ref().map_or(&files.target as &dyn WeightSource, |source| source);
    let backend = Arc::new(backend);
    let text = source.spec().text.as_ref().ok_or_else(|| {
        Error::Invalid(format!(
            "{} holds no text model; name a Muse-Glimmer folder or GGUF file, not its drafter or \
             its vision file",
            files.name
        ))
    })?;
    let read = files.drafter.as_ref().map(|drafter| drafter as &dyn WeightSource);
    let rounded = read.zip(options.weights).map(|(drafter, mix)| RoundedWeights::new(drafter, mix));
    let guesser = rounded.as_ref().map(|drafter| drafter as &dyn WeightSource).or(read);
    let sizes = Sizes::fit(&*backend, text, source, guesser, options)?;
    // Before the long load, which may show the plan to be wrong.
    tracing::info!("memory plan: {}", sizes.plan);
    // The drafter goes first: that it belongs to another model should show before the long load.
    let drafter = match guesser {
        Some(drafter) => {
            let mut progress = |done, total| progress("loading the drafter", done, total);
            let sizes = sizes.model();
            Some(Dflash::new(Arc::clone(&backend), drafter, text, &sizes, &mut progress)?)
        }
        None => None,
    };
    let draft_width = drafter.as_ref().map_or(0, |drafter| drafter.width() as u32);
    check_draft(options.max_draft, draft_width)?;
    let captured_layers =
        drafter.as_ref().map_or(Vec::new(), |drafter| drafter.captured_layers().to_vec());
    let target = {
        let mut progress = |done, total| progress("loading the model", done, total);
        let sizes = sizes.model();
        Model::new(Arc::clone(&backend), source, &sizes, &captured_layers, &mut progress)?
    };
    let tokenizer = source.vocabulary()?.map(AtemTokenizer::new).transpose()?;
    let grammars = tokenizer.clone().map(Grammars::new).transpose()?.map(Arc::new);
    let tokenizer = tokenizer.map(|tokenizer| tokenizer as Arc<dyn Tokenizer>);
    let template = tokenizer.clone().map(|tokenizer| template(options, tokenizer)).transpose()?;
    let template_warning = match (&template, &options.chat_template) {
        (Some(_), None) => files.target.chat_template()?.as_deref().and_then(template_warning),
        _ => None,
    };
    let spill = match &options.spill {
        Some((folder, most)) => {
            let (kv, mix) = (options.kv, options.weights);
            let device = format!("{backend_name} {kv:?} {} {mix:?}", options.exact);
            let sources = [Some(&files.target as &dyn WeightSource), read];
            let identity = identity(sources.into_iter().flatten(), device)?;
            Some(Arc::new(SpillFolder::open(folder, *most, identity)?) as Arc<dyn KvOffloadStore>)
        }
        None => None,
    };
    let card = ModelCard {
        name: files.name.clone(),
        architecture: "muse-glimmer".to_owned(),
        max_positions: sizes.plan.context,
        vocab: text.vocab as u32,
        parameters: text_tensors(source).map(|tensor| (tensor.rows * tensor.cols) as u64).sum(),
        formats: formats(source),
        backend: backend_name.to_owned(),
        draft_width: options.max_draft.unwrap_or(draft_width),
        loaded_at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
    };
    Ok(Loaded {
        card,
        sampling: sampling(source),
        stop: stop(source, tokenizer.as_deref()),
        tokenizer,
        template,
        grammars,
        template_warning,
        plan: sizes.plan.clone(),
        work: Work::of(source),
        parts: Box::new(Joined { backend, target, drafter, sizes, spill, cold: options.cold }),
    })
}

/// What renders conversations: the file that is named, or the native template.
fn template(
    options: &LoadOptions,
    tokenizer: Arc<dyn Tokenizer>,
) -> Result<Arc<dyn PromptTemplate>> {
    let Some(path) = &options.chat_template else { return Ok(Arc::new(Template::new(tokenizer))) };
    let wrong = |why: &dyn std::fmt::Display| {
        Error::Invalid(format!("--chat-template {}: {why}", path.display()))
    };
    let source = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    Ok(Arc::new(FileTemplate::new(&source, tokenizer).map_err(|error| wrong(&error))?))
}

/// A number that differs where KV blocks of the K/V cache would: other weights, a `device` that computes
/// or stores otherwise. Looks at the beginning of every tensor, not at all of it.
fn identity<'a>(
    sources: impl Iterator<Item = &'a dyn WeightSource>,
    device: String,
) -> Result<u64> {
    const LOOKED_AT: usize = 4096;
    let mut bytes = device.into_bytes();
    for source in sources {
        bytes.extend(format!("{:?}{:?}", source.spec(), source.tensors()).bytes());
        for tensor in source.tensors() {
            let view = source.weight(&tensor.name)?;
            bytes.extend(&view.bytes[..view.bytes.len().min(LOOKED_AT)]);
        }
    }
    Ok(bytes.iter().fold(bytes.len() as u64, |sum, &byte| hash64(sum, u64::from(byte))))
}

/// The tensors that are parameters of the text model. The norms of q and k hold a constant.
fn text_tensors(source: &dyn WeightSource) -> impl Iterator<Item = &TensorInfo> {
    let text = |tensor: &&TensorInfo| {
        let name = &tensor.name;
        !name.starts_with("v.")
            && !name.starts_with("mm.")
            && !name.ends_with("attn_q_norm.weight")
            && !name.ends_with("attn_k_norm.weight")
    };
    source.tensors().iter().filter(text)
}

/// Bytes of a tensor in the file.
fn bytes(tensor: &TensorInfo) -> u64 {
    tensor.format.bytes_for(tensor.rows * tensor.cols) as u64
}

/// Formats of the text model with their share of the bytes, most first.
fn formats(source: &dyn WeightSource) -> Vec<(String, f32)> {
    let total: u64 = text_tensors(source).map(bytes).sum();
    let mut shares: Vec<(String, f32)> = Vec::new();
    for tensor in text_tensors(source) {
        let share = bytes(tensor) as f32 / total as f32;
        let name = tensor.format.name();
        match shares.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += share,
            None => shares.push((name.to_owned(), share)),
        }
    }
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    shares
}

/// What the checkpoint says, over what the published model says where it is silent.
fn sampling(source: &dyn WeightSource) -> Sampling {
    let said = source.generation();
    Sampling {
        temperature: said.temperature.unwrap_or(1.0),
        top_k: said.top_k.unwrap_or(64),
        top_p: said.top_p.unwrap_or(0.95),
        min_p: said.min_p.unwrap_or(0.0),
        repetition_penalty: said.repetition_penalty.unwrap_or(1.0),
        ..Sampling::default()
    }
}

fn stop(source: &dyn WeightSource, tokenizer: Option<&dyn Tokenizer>) -> Vec<Token> {
    let mut stop: Vec<Token> = source.generation().stop.iter().copied().map(Token).collect();
    if stop.is_empty()
        && let Some(tokenizer) = tokenizer
    {
        let ends = ["<|end_of_text|>", "<|eot|>"];
        stop.extend(ends.iter().filter_map(|mark| tokenizer.special_token(mark)));
    }
    stop
}

impl Loaded {
    /// Runs `prompt` and hands over the logits of its tokens, after scale and cap, some whole rows
    /// `[rows, vocab]` at a time, for as long as `take` says so.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the prompt is empty, too long or not of this vocabulary.
    pub fn logits(
        &mut self,
        prompt: &[Token],
        take: &mut dyn FnMut(&[f32]) -> ControlFlow<()>,
    ) -> Result<()> {
        let room = self.card.max_positions as usize;
        if prompt.is_empty() || prompt.len() > room {
            return Err(Error::Invalid(format!(
                "the prompt has {} tokens, there is room for 1 to {room}; change the prompt or \
                 --context",
                prompt.len()
            )));
        }
        if let Some(token) = prompt.iter().find(|token| token.0 >= self.card.vocab) {
            return Err(Error::Invalid(format!(
                "token {} is not in the vocabulary, whose ids are below {}",
                token.0, self.card.vocab
            )));
        }
        let mut passes = self.parts.passes()?;
        let (rows, scored) = passes.limits();
        let mut values = Vec::new();
        for chunk in prompt.chunks(rows.min(scored)) {
            passes.pass(chunk, LogitsRequest::All)?;
            passes.logits(chunk.len(), &mut values)?;
            if take(&values).is_break() {
                break;
            }
            passes.keep(chunk);
        }
        Ok(())
    }

    /// Drives the model by hand, one sequence that begins empty.
    ///
    /// # Errors
    /// What the pool says.
    pub fn passes(&mut self) -> Result<Box<dyn Passes + '_>> {
        self.parts.passes()
    }

    /// Starts the engine. `on_failure` hears of it when the engine stops for good.
    ///
    /// # Errors
    /// [`Error::Exhausted`] when there is no thread to be had.
    pub fn start(self, on_failure: OnFailure) -> Result<App> {
        let engine = self.parts.start(on_failure)?;
        Ok(App {
            model: self.card,
            engine,
            tokenizer: self.tokenizer,
            template: self.template,
            grammars: self.grammars,
            sampling: self.sampling,
            stop: self.stop,
        })
    }
}

/// A loaded model on its backend.
trait Parts: Send {
    fn passes(&mut self) -> Result<Box<dyn Passes + '_>>;
    fn start(self: Box<Self>, on_failure: OnFailure) -> Result<Arc<dyn Engine>>;
}

struct Joined<B: Backend> {
    backend: Arc<B>,
    target: Model<B>,
    drafter: Option<Dflash<B>>,
    sizes: Sizes,
    spill: Option<Arc<dyn KvOffloadStore>>,
    cold: bool,
}

impl<B: Backend> Parts for Joined<B> {
    fn passes(&mut self) -> Result<Box<dyn Passes + '_>> {
        Ok(Box::new(Line::new(&*self.backend, &mut self.target, self.sizes.pool)?))
    }

    fn start(self: Box<Self>, on_failure: OnFailure) -> Result<Arc<dyn Engine>> {
        let Self { backend, target, drafter, sizes, spill, cold } = *self;
        let pool = Pool::new(PoolOptions {
            prefix_caching: !cold,
            offload_root: spill.as_ref().filter(|_| !cold).map(|store| store.root()),
            ..sizes.pool
        });
        let options =
            EngineOptions { on_failure: Some(on_failure), kv_offload: spill, ..sizes.engine };
        let drafter = drafter.map(|drafter| Box::new(drafter) as Box<dyn Drafter<B>>);
        let handle = engine::spawn(backend, Box::new(target), drafter, Box::new(pool), options)?;
        Ok(Arc::new(handle))
    }
}
