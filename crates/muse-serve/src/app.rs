//! The model being served, with its engine, tokenizer and chat template; shared by all services.

use std::sync::Arc;

use muse_atem::Grammars;
use muse_core::contract::{Engine, PromptTemplate, Sampling, Token, Tokenizer};

/// A model being served. [`crate::runtime::Loaded::start`] builds it.
pub struct App {
    /// Facts to show.
    pub model: ModelCard,
    /// Runs requests.
    pub engine: Arc<dyn Engine>,
    /// Text to tokens; none for a checkpoint without a vocabulary, which serves token ids only.
    pub tokenizer: Option<Arc<dyn Tokenizer>>,
    /// Conversations to prompts; present when the tokenizer is.
    pub template: Option<Arc<dyn PromptTemplate>>,
    /// Compiles grammars that constrain answers and tool calls; present when the tokenizer is.
    pub grammars: Option<Arc<Grammars>>,
    /// Used where a request leaves a field out.
    pub sampling: Sampling,
    /// Tokens that end an answer.
    pub stop: Vec<Token>,
}

/// Facts about the model that services report.
#[derive(Clone, Debug, Default)]
pub struct ModelCard {
    /// The name requests may use.
    pub name: String,
    /// `muse-glimmer`.
    pub architecture: String,
    /// Positions a sequence may have.
    pub max_positions: u32,
    /// Size of the vocabulary.
    pub vocab: u32,
    /// Parameters of the text model.
    pub parameters: u64,
    /// Weight formats with their share of the bytes, the largest first.
    pub formats: Vec<(String, f32)>,
    /// Device it runs on.
    pub backend: String,
    /// The most draft tokens of a verify; 0 without a drafter.
    pub draft_width: u32,
    /// Unix time when it was loaded, in seconds.
    pub loaded_at: u64,
}
