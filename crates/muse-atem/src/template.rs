//! The native chat template over a checkpoint's tokenizer, as [`PromptTemplate`].

use std::sync::Arc;

use muse_core::Result;
use muse_core::contract::{Conversation, OutputParser, PromptPart, PromptTemplate, Tokenizer};

use crate::parser::TokenOutputParser;
use crate::render::render;

/// Renders as the published chat template does and parses answers token by token.
pub struct Template {
    tokenizer: Arc<dyn Tokenizer>,
}

impl Template {
    /// A template that parses answers in the tokens of this tokenizer.
    pub fn new(tokenizer: Arc<dyn Tokenizer>) -> Self {
        Self { tokenizer }
    }
}

impl PromptTemplate for Template {
    fn render(&self, conversation: &Conversation) -> Result<Vec<PromptPart>> {
        render(conversation)
    }

    fn output_parser(&self, conversation: &Conversation, stop: &[String]) -> Box<dyn OutputParser> {
        Box::new(TokenOutputParser::new(conversation, stop, Arc::clone(&self.tokenizer)))
    }
}
