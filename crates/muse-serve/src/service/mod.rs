//! What the server does, apart from any protocol: gRPC and HTTP only spell it differently.

mod answer;
mod aside;
mod chat;
mod choice;
mod constrain;
mod feed;
mod gate;
mod generate;
mod refusal;
mod settings;
mod turns;

use std::sync::Arc;

use muse_core::contract::{Conversation, Token};

pub use answer::Answer;
pub use chat::{Ask, Prompt};
pub use choice::{ChatEvent, End, Spent};
pub use constrain::Rules;
pub use gate::{Gate, Pass};
pub use generate::{Complete, GenerateEvent};
pub use refusal::Refusal;
pub use settings::Settings;

use crate::app::App;
pub(crate) use aside::aside;
use aside::{Wanted, Workshop};
use chat::Reader;
use settings::known;
pub(crate) use settings::random;
use turns::Turns;

/// The services over one model.
#[derive(Clone)]
pub struct Service {
    app: Arc<App>,
    gate: Gate,
    workshop: Workshop,
    /// None for a model without a vocabulary.
    turns: Option<Arc<Turns>>,
}

impl Service {
    /// The services of a model, let in by `gate`.
    pub fn new(app: Arc<App>, gate: Gate) -> Self {
        let turns = app.tokenizer.clone().map(|tokenizer| Arc::new(Turns::new(tokenizer)));
        Self { app, gate, workshop: Workshop::default(), turns }
    }

    /// The model.
    pub fn app(&self) -> &App {
        &self.app
    }

    /// The way in.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Whether a request for `model` is meant for the one served here.
    ///
    /// # Errors
    /// [`Refusal::UnknownModel`] names both.
    pub fn check_model(&self, model: Option<&str>) -> Result<(), Refusal> {
        let served = &self.app.model.name;
        match model {
            Some(asked) if !asked.is_empty() && asked != served => {
                Err(Refusal::UnknownModel { asked: asked.to_owned(), served: served.clone() })
            }
            _ => Ok(()),
        }
    }

    /// The tokens of a text, marks in it read as text.
    ///
    /// # Errors
    /// [`Refusal::NoText`] for a model without a vocabulary, [`Refusal::TooMuchText`] for what could
    /// never be a prompt.
    pub async fn tokenize(&self, text: String) -> Result<Vec<Token>, Refusal> {
        let reader = Reader::of(&self.app)?;
        aside(move || reader.read(&text)).await
    }

    /// The bytes of tokens.
    ///
    /// # Errors
    /// [`Refusal::NoText`], and [`Refusal::Field`] for tokens out of the vocabulary.
    pub fn detokenize(&self, tokens: &[Token]) -> Result<Vec<u8>, Refusal> {
        let reader = Reader::of(&self.app)?;
        let mut bytes = Vec::new();
        for &token in tokens {
            known(&self.app, "ids", token)?;
            reader.tokenizer.decode(token, &mut bytes);
        }
        Ok(bytes)
    }

    /// The prompt a conversation becomes.
    ///
    /// # Errors
    /// What the template refuses.
    pub async fn render(&self, conversation: Conversation) -> Result<Prompt, Refusal> {
        let reader = Reader::of(&self.app)?;
        aside(move || reader.render(&conversation)).await
    }

    fn check_room(&self, prompt: usize) -> Result<(), Refusal> {
        let room = self.app.model.max_positions;
        if prompt < room as usize { Ok(()) } else { Err(Refusal::TooLong { prompt, room }) }
    }
}
