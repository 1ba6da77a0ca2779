//! What the services share: one model behind its engine, and how to talk to it.

use std::sync::Arc;

use muse_atem::Grammars;
use muse_core::contract::{Engine, PromptTemplate, Sampling, Token, Tokenizer};

/// A model being served. The command's wiring builds it, the services use it.
pub struct App {
    /// Facts to show.
    pub model: ModelCard,
    /// Runs requests.
    pub engine: Arc<dyn Engine>,
    /// Text to tokens; none for a checkpoint without a vocabulary, which serves token ids only.
    pub tokenizer: Option<Arc<dyn Tokenizer>>,
    /// Conversations to prompts; present when the tokenizer is.
    pub template: Option<Arc<dyn PromptTemplate>>,
    /// What answers and calls can be held to; none for a vocabulary that no grammar knows.
    pub grammars: Option<Arc<Grammars>>,
    /// Used where a request says nothing.
    pub sampling: Sampling,
    /// Tokens that end a turn.
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
    /// Weight formats with their share of the bytes, most first.
    pub formats: Vec<(String, f32)>,
    /// Device it runs on.
    pub backend: String,
    /// Most drafts a verify carries; 0 without a drafter.
    pub draft_width: u32,
    /// Unix time when it was loaded, in seconds.
    pub loaded_at: u64,
}
