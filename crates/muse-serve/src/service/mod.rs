//! What the server does, apart from any protocol: gRPC and HTTP translate to and from it.

mod answer_token_cache;
mod blocking;
mod byte_budget;
mod chat;
mod choice_state;
mod compile_queue;
mod constraints;
mod content_tokens;
mod drain_guard;
mod error;
mod event_stream;
mod generate;
mod options;
mod output_stream;
mod prompt;
mod request_scope;
mod settings;
mod usage;

use std::sync::Arc;

pub use byte_budget::{ByteBudget, Reservation};
pub use chat::ChatJob;
pub use choice_state::{AnswerToken, ChatEvent, ChatFinish};
pub use constraints::ChatConstraints;
pub use drain_guard::{DrainGuard, Permit};
pub use error::ServiceError;
pub use generate::{GenerateEvent, GenerateJob};
pub use options::{RequestLimits, ServiceOptions};
pub use output_stream::OutputStream;
pub use prompt::Prompt;
pub use request_scope::RequestScope;
pub use settings::GenerationSettings;
pub use usage::{ChatUsage, RequestUsage};

use crate::app::App;
use answer_token_cache::AnswerTokenCache;
pub(crate) use blocking::run_blocking;
use compile_queue::CompileQueue;
pub(crate) use settings::random_u64;

/// The services of one model. Clones share their state.
#[derive(Clone)]
pub struct Service {
    app: Arc<App>,
    options: ServiceOptions,
    drain_guard: DrainGuard,
    compile_queue: CompileQueue,
    /// None for a model without a tokenizer.
    answer_tokens: Option<Arc<AnswerTokenCache>>,
}

impl Service {
    /// The services of a model. `drain_guard` admits their requests.
    pub fn new(app: Arc<App>, drain_guard: DrainGuard) -> Self {
        let cache = |tokenizer| Arc::new(AnswerTokenCache::new(tokenizer));
        let answer_tokens = app.tokenizer.clone().map(cache);
        let (options, compile_queue) = (ServiceOptions::default(), CompileQueue::default());
        Self { app, options, drain_guard, compile_queue, answer_tokens }
    }

    /// The same services with other options.
    #[must_use]
    pub fn with_options(self, options: ServiceOptions) -> Self {
        Self { options, ..self }
    }

    /// The model and what belongs to it.
    pub fn app(&self) -> &App {
        &self.app
    }

    /// What admits requests.
    pub fn drain_guard(&self) -> &DrainGuard {
        &self.drain_guard
    }

    /// Checks that `model` may name the model served here. None and the empty name do.
    ///
    /// # Errors
    /// [`ServiceError::UnknownModel`] names both.
    pub fn check_model(&self, model: Option<&str>) -> Result<(), ServiceError> {
        let served = &self.app.model.name;
        match model {
            Some(requested)
                if !requested.is_empty() && !self.app.names.accept(requested, served) =>
            {
                let (requested, served) = (requested.to_owned(), served.clone());
                Err(ServiceError::UnknownModel { requested, served })
            }
            _ => Ok(()),
        }
    }

    fn check_prompt_length(&self, prompt: usize) -> Result<(), ServiceError> {
        let max_positions = self.app.model.max_positions;
        if prompt < max_positions as usize {
            return Ok(());
        }
        Err(ServiceError::PromptTooLong { prompt, max_positions })
    }
}
