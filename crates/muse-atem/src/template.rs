//! The native template with a checkpoint's tokenizer: the contract's view of this crate.

use std::sync::Arc;

use muse_core::Result;
use muse_core::contract::{Conversation, OutputParser, PromptPart, PromptTemplate, Tokenizer};

use crate::listen::TokenOutputParser;
use crate::render::render;

/// Renders as the published chat template does and hears answers token by token.
pub struct Template {
    tokenizer: Arc<dyn Tokenizer>,
}

impl Template {
    /// A template over a checkpoint's tokens.
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
