//! What turns conversations into tokens and holds answers to a grammar: tokenizer, chat template
//! and grammars of a checkpoint.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use muse_atem::{FileTemplate, Grammars, Template, Tokenizer as AtemTokenizer};
use muse_core::contract::{PromptTemplate, Tokenizer, WeightSource};
use muse_core::{Error, Result};

/// The largest chat template that is read.
const MAX_TEMPLATE_BYTES: u64 = 4 << 20;

/// All parts are none for a checkpoint without a vocabulary, which serves token ids only.
#[derive(Default)]
pub(super) struct ChatFormat {
    pub(super) tokenizer: Option<Arc<dyn Tokenizer>>,
    pub(super) template: Option<Arc<dyn PromptTemplate>>,
    pub(super) grammars: Option<Arc<Grammars>>,
}

impl ChatFormat {
    /// Builds the tokenizer of a checkpoint, and the template from `file` if one is named.
    pub(super) fn new(source: &dyn WeightSource, file: Option<&Path>) -> Result<Self> {
        let Some(vocabulary) = source.vocabulary()? else { return Ok(Self::default()) };
        let tokenizer = AtemTokenizer::new(vocabulary)?;
        let grammars = Grammars::new(Arc::clone(&tokenizer))?;
        let template = template(file, Arc::clone(&tokenizer) as Arc<dyn Tokenizer>)?;
        Ok(Self {
            tokenizer: Some(tokenizer),
            template: Some(template),
            grammars: Some(Arc::new(grammars)),
        })
    }
}

/// The template in a file, or the native one.
fn template(file: Option<&Path>, tokenizer: Arc<dyn Tokenizer>) -> Result<Arc<dyn PromptTemplate>> {
    let Some(path) = file else { return Ok(Arc::new(Template::new(tokenizer))) };
    let invalid = |error: &dyn Display| {
        Error::Invalid(format!("--chat-template {}: {error}", path.display()))
    };
    let source = muse_weights::read_text_file(path, MAX_TEMPLATE_BYTES);
    let source = source.map_err(|error| invalid(&error))?;
    Ok(Arc::new(FileTemplate::new(&source, tokenizer).map_err(|error| invalid(&error))?))
}
