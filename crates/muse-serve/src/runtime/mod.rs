//! The composition root: loads checkpoints onto a backend and joins model, drafter, KV pool and
//! engine. The only place that names backends, models and drafters.

pub mod backends;
mod chat;
mod checkpoints;
mod identity;
mod loader;
mod memory;
mod model_card;
mod model_runner;
mod models;
mod nano;
mod roofline;
mod sampling;
mod vision;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use muse_core::contract::{KvType, LogitsRequest, Sampling, Token};
use muse_core::engine::TargetItl;
use muse_core::model::BfpPolicy;
use muse_core::{Error, Result};

use crate::{App, ModelCard, ModelNames};
use backends::Backends;
use chat::ChatFormat;
pub use identity::ContentHashes;
use loader::LoadedModel;
pub use memory::MemoryPlan;
pub use model_runner::ModelRunner;
pub use roofline::{MatrixWork, PassWork, Roofline};
pub use vision::{EncodeOptions, EncodedPicture, encode_picture};

/// What to load and how to run it.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// HuggingFace folder or GGUF file; none means the embedded muse-nano with its drafter.
    pub model: Option<PathBuf>,
    /// The drafter's folder or file.
    pub draft: Option<PathBuf>,
    /// A Jinja file that renders conversations instead of the native chat template.
    pub chat_template: Option<PathBuf>,
    /// The vision tower's GGUF file.
    pub mmproj: Option<PathBuf>,
    /// How K and V are stored, the drafter's too.
    pub kv: KvType,
    /// Rounds the matrices, the drafter's too, to the values that a Tenstorrent card would hold.
    pub weights: Option<BfpPolicy>,
    /// Positions a sequence may have; none means what the checkpoint allows and memory holds.
    pub context: Option<u32>,
    /// Sequences of full length that the KV cache holds; none means what memory holds, up to
    /// `default_max_parallel`.
    pub parallel: Option<usize>,
    /// Sequences that may run at a time; 0 counts as 1.
    pub default_max_parallel: usize,
    /// Requests that may wait; none means the engine's default.
    pub max_queued_requests: Option<usize>,
    /// How long a step with prompt tokens should take at most while other sequences decode.
    pub target_itl: TargetItl,
    /// Threads that compute; none means one a core.
    pub threads: Option<usize>,
    /// Multiplies by activations in f32 where the device would round them: slower, for comparing
    /// with references.
    pub exact: bool,
    /// Draft tokens of every verify, at most the drafter's width; 0 leaves the drafter out. None
    /// means as many as pay.
    pub max_draft: Option<u32>,
    /// Keeps evicted KV blocks on disk.
    pub kv_disk: Option<KvDiskOptions>,
    /// Name of a backend in [`Backends`]; none means the first.
    pub backend: Option<String>,
    /// No request reuses the KV blocks of an earlier one: every prompt runs whole. Excludes
    /// `kv_disk`.
    pub no_prefix_caching: bool,
    /// Allocates logits for many positions a pass, for [`Loaded::logits`] and
    /// [`Loaded::model_runner`].
    pub logits: bool,
}

/// Where evicted KV blocks are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvDiskOptions {
    /// The folder. It is made if it is missing, and used by one process at a time.
    pub folder: PathBuf,
    /// The most bytes that its files may take.
    pub max_bytes: u64,
}

/// Called once with the reason when an engine stops for good.
pub type OnFailure = Arc<dyn Fn(&Error) + Send + Sync>;

/// A model that is loaded and does not run yet.
pub struct Loaded {
    /// Facts about it.
    pub card: ModelCard,
    /// How much memory it takes.
    pub plan: MemoryPlan,
    /// What a forward pass reads and computes.
    pub work: PassWork,
    /// Set when the checkpoint's own chat template differs from the native one that renders.
    pub template_warning: Option<String>,
    /// Text to tokens, templates and grammars.
    chat: ChatFormat,
    sampling: Sampling,
    stop: Vec<Token>,
    model: Box<dyn LoadedModel>,
}

/// Loads a model with a backend of this build. `progress` is called with what is being loaded, how
/// many of its tensors are loaded, and how many there are.
///
/// # Errors
/// [`Error::Invalid`] when paths or options contradict each other, [`Error::Corrupt`] for broken
/// files, [`Error::Exhausted`] when memory cannot hold what was asked for, [`Error::Unsupported`]
/// for what this build lacks.
pub fn load(options: &LoadOptions, progress: &mut Progress<'_>) -> Result<Loaded> {
    Backends::default().load(options, progress)
}

/// Computes the memory that a model takes with these options, without loading it and whatever memory
/// is free: without a context, that of the checkpoint.
///
/// # Errors
/// As [`load`].
pub fn estimate_memory(options: &LoadOptions) -> Result<MemoryPlan> {
    Backends::default().estimate_memory(options)
}

/// Called with what is being loaded, how many of its tensors are loaded, and how many there are.
pub type Progress<'a> = dyn FnMut(&str, usize, usize) + 'a;

impl Loaded {
    /// Text to tokens; none for a checkpoint without a vocabulary.
    pub fn tokenizer(&self) -> Option<&Arc<dyn muse_core::contract::Tokenizer>> {
        self.chat.tokenizer.as_ref()
    }

    /// Runs `prompt` and passes the logits of its positions, after scale and soft cap, to `take`:
    /// some whole rows `[positions, vocab]` at a time, until it breaks.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the prompt is empty, too long or not of this vocabulary.
    pub fn logits(
        &mut self,
        prompt: &[Token],
        take: &mut dyn FnMut(&[f32]) -> ControlFlow<()>,
    ) -> Result<()> {
        let max = self.card.max_positions as usize;
        if prompt.is_empty() || prompt.len() > max {
            return Err(Error::Invalid(format!(
                "the prompt has {} tokens, there is room for 1 to {max}; change the prompt or \
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
        let mut runner = self.model.runner()?;
        let limits = runner.limits();
        let mut values = Vec::new();
        for chunk in prompt.chunks(limits.max_num_batched_tokens.min(limits.max_logits_rows)) {
            runner.forward(chunk, LogitsRequest::All)?;
            runner.logits(chunk.len(), &mut values)?;
            if take(&values).is_break() {
                break;
            }
            runner.commit(chunk);
        }
        Ok(())
    }

    /// Runs the model pass by pass, without the engine: one sequence that begins empty.
    ///
    /// # Errors
    /// What the KV pool returns.
    pub fn model_runner(&mut self) -> Result<Box<dyn ModelRunner + '_>> {
        self.model.runner()
    }

    /// Starts the engine. `on_failure` is called when the engine stops for good.
    ///
    /// # Errors
    /// [`Error::Exhausted`] when the system gives no thread.
    pub fn start(self, on_failure: OnFailure) -> Result<App> {
        let engine = self.model.start(on_failure)?;
        Ok(App {
            model: self.card,
            engine,
            tokenizer: self.chat.tokenizer,
            template: self.chat.template,
            grammars: self.chat.grammars,
            sampling: self.sampling,
            stop: self.stop,
            names: ModelNames::default(),
        })
    }
}
