//! Texts and conversations to tokens, and tokens to bytes.

use std::sync::Arc;

use muse_core::contract::{Conversation, PromptPart, PromptTemplate, Token, Tokenizer};

use super::settings::check_token;
use super::{Service, ServiceError, run_blocking};
use crate::app::App;

/// A text of at most this length is tokenized without a check against [`PromptEncoder::check_text`].
const SHORT_TEXT_BYTES: usize = 256 << 10;

/// A prompt as the model reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Its text, special tokens spelled in full.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<Token>,
}

/// Tokenizer and template of a model that has them.
#[derive(Clone)]
pub(super) struct PromptEncoder {
    tokenizer: Arc<dyn Tokenizer>,
    pub(super) template: Arc<dyn PromptTemplate>,
    max_positions: u32,
}

impl PromptEncoder {
    pub(super) fn new(app: &App) -> Result<Self, ServiceError> {
        match (&app.tokenizer, &app.template) {
            (Some(tokenizer), Some(template)) => Ok(Self {
                tokenizer: tokenizer.clone(),
                template: template.clone(),
                max_positions: app.model.max_positions,
            }),
            _ => Err(ServiceError::NoTokenizer),
        }
    }

    /// The tokens of a conversation's prompt.
    pub(super) fn encode(&self, conversation: &Conversation) -> Result<Vec<Token>, ServiceError> {
        self.encode_parts(&self.template.render(conversation)?)
    }

    fn encode_parts(&self, parts: &[PromptPart]) -> Result<Vec<Token>, ServiceError> {
        let bytes = |part: &PromptPart| match part {
            PromptPart::Text(text) => text.len(),
            _ => 0,
        };
        self.check_text(parts.iter().map(bytes).sum())?;
        Ok(muse_atem::encode(parts, self.tokenizer.as_ref())?)
    }

    fn render(&self, conversation: &Conversation) -> Result<Prompt, ServiceError> {
        let parts = self.template.render(conversation)?;
        Ok(Prompt { tokens: self.encode_parts(&parts)?, text: muse_atem::spell(&parts) })
    }

    fn tokenize(&self, text: &str) -> Result<Vec<Token>, ServiceError> {
        self.check_text(text.len())?;
        let mut tokens = Vec::new();
        self.tokenizer.encode(text, &mut tokens);
        Ok(tokens)
    }

    /// Refuses a text that cannot fit before it is tokenized, which takes minutes and gigabytes for
    /// megabytes of text.
    fn check_text(&self, bytes: usize) -> Result<(), ServiceError> {
        if bytes <= SHORT_TEXT_BYTES {
            return Ok(());
        }
        let mut spelling = Vec::new();
        let length = |token| {
            spelling.clear();
            self.tokenizer.decode(Token(token), &mut spelling);
            spelling.len()
        };
        let longest = (0..self.tokenizer.vocab_size() as u32).map(length).max().unwrap_or(0);
        let max_positions = self.max_positions;
        if bytes <= longest.saturating_mul(max_positions as usize) {
            return Ok(());
        }
        Err(ServiceError::TextTooLong { bytes, max_positions })
    }
}

impl Service {
    /// The tokens of a text; special tokens spelled in it are encoded as text.
    ///
    /// # Errors
    /// [`ServiceError::NoTokenizer`] for a model without one, [`ServiceError::TextTooLong`] for a
    /// text that could never be a prompt.
    pub async fn tokenize(&self, text: String) -> Result<Vec<Token>, ServiceError> {
        let encoder = PromptEncoder::new(&self.app)?;
        run_blocking(move || encoder.tokenize(&text)).await
    }

    /// The bytes of tokens.
    ///
    /// # Errors
    /// [`ServiceError::NoTokenizer`], and [`ServiceError::InvalidField`] for tokens out of the
    /// vocabulary, or more than a sequence may have.
    pub async fn detokenize(&self, tokens: Vec<Token>) -> Result<Vec<u8>, ServiceError> {
        let encoder = PromptEncoder::new(&self.app)?;
        let max = encoder.max_positions;
        if tokens.len() > max as usize {
            let message = format!(
                "found {}; at most {max}, the positions of the model, are detokenized at once",
                tokens.len()
            );
            return Err(ServiceError::invalid_field("ids", message));
        }
        let service = self.clone();
        run_blocking(move || {
            let mut bytes = Vec::new();
            for token in tokens {
                check_token(&service.app, "ids", token)?;
                encoder.tokenizer.decode(token, &mut bytes);
            }
            Ok(bytes)
        })
        .await
    }

    /// The prompt of a conversation.
    ///
    /// # Errors
    /// Those of the template.
    pub async fn render(&self, conversation: Conversation) -> Result<Prompt, ServiceError> {
        let encoder = PromptEncoder::new(&self.app)?;
        run_blocking(move || encoder.render(&conversation)).await
    }
}
