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
    /// Names that requests may give the model.
    pub names: ModelNames,
}

/// Names of the model beside its own, [`ModelCard::name`], which every answer carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelNames {
    /// Names that are known, beside [`ModelNames::USUAL`].
    pub aliases: Vec<String>,
    /// Whether a request for a name that is not known is refused; else the model answers.
    pub strict: bool,
}

impl ModelNames {
    /// Names that are always known: that of the server and that of the published model.
    pub const USUAL: [&str; 2] = ["muse", "Muse-Glimmer-30B"];

    /// Whether a request for `name` is answered by the model called `served`.
    pub fn accept(&self, name: &str, served: &str) -> bool {
        !self.strict
            || name == served
            || Self::USUAL.contains(&name)
            || self.aliases.iter().any(|alias| alias == name)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_strict_names_refuse() {
        let names = |strict| ModelNames { aliases: vec!["gpt-4o".to_owned()], strict };
        for known in ["served", "muse", "Muse-Glimmer-30B", "gpt-4o"] {
            assert!(names(true).accept(known, "served"), "{known}");
        }
        assert!(!names(true).accept("other", "served"));
        assert!(names(false).accept("other", "served"));
    }
}
