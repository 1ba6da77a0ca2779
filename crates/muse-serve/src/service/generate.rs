//! Completion of token ids, which are neither rendered nor parsed.

use std::sync::Arc;

use muse_core::contract::{Event, Request, Sampled, Segment, Token};

use super::event_stream::EventStream;
use super::settings::check_token;
use super::{
    ChatFinish, ChatUsage, GenerationSettings, OutputStream, RequestScope, Service, ServiceError,
};

/// A prompt to complete.
#[derive(Clone, Debug, Default)]
pub struct GenerateJob {
    /// The model's name; none means the one being served.
    pub model: Option<String>,
    /// At least one token.
    pub prompt: Vec<Token>,
    /// Sampling and limits.
    pub settings: GenerationSettings,
    /// Tokens that end the completion, beside the model's own.
    pub stop_ids: Vec<Token>,
    /// Whether to go on past the model's own stop tokens.
    pub ignore_model_stop: bool,
    /// What is tracked of the request, if anything.
    pub scope: Option<Arc<RequestScope>>,
}

/// What happens in a completion: progress, tokens, one `Usage`, one `Finish`.
#[derive(Clone, Debug, PartialEq)]
pub enum GenerateEvent {
    /// Prompt tokens that are prefilled, of how many.
    Progress {
        /// Tokens done.
        done: u32,
        /// All tokens.
        total: u32,
    },
    /// More tokens, at least one.
    Tokens(Vec<Sampled>),
    /// What it took. `reasoning` is always 0: raw completions are not parsed.
    Usage(ChatUsage),
    /// The end.
    Finish(ChatFinish),
}

impl Service {
    /// Completes a prompt.
    ///
    /// # Errors
    /// As [`Service::chat`].
    pub fn generate(&self, job: GenerateJob) -> Result<OutputStream<GenerateEvent>, ServiceError> {
        let permit = self.drain_guard.acquire()?;
        let app = &self.app;
        self.check_model(job.model.as_deref())?;
        let GenerateJob { prompt, settings, mut stop_ids, scope, .. } = job;
        if prompt.is_empty() {
            let message = "found none; send at least one token";
            return Err(ServiceError::invalid_field("prompt_ids", message));
        }
        prompt.iter().try_for_each(|&token| check_token(app, "prompt_ids", token))?;
        stop_ids.iter().try_for_each(|&token| check_token(app, "stop_ids", token))?;
        self.check_prompt_length(prompt.len())?;
        settings.check_limits()?;
        if !job.ignore_model_stop {
            stop_ids.extend(&app.stop);
        }
        let prompt_bytes = size_of_val(prompt.as_slice());
        let request = Request {
            prompt: vec![Segment::Tokens(prompt)],
            sampling: settings.sampling(app)?,
            stop: stop_ids,
            max_tokens: self.options.limits.tokens(settings.max_tokens),
            min_tokens: settings.min_tokens,
            max_draft: settings.max_draft,
            logprobs: settings.logprobs,
            constraint: None,
            deadline: settings.deadline,
            priority: self.options.limits.priority(settings.priority),
            ..Request::default()
        };
        let events = EventStream::open(app.engine.clone(), permit, scope.as_deref(), [request])?;
        if let Some(scope) = &scope {
            scope.memory.shrink_to(prompt_bytes);
        }
        Ok(OutputStream::new(events, scope.clone(), move |_, choice, event, ready| {
            match (event, ready.back_mut()) {
                (Event::Prefill { done, total }, _) => {
                    ready.push_back((choice, GenerateEvent::Progress { done, total }));
                }
                (Event::Token(sampled), Some((_, GenerateEvent::Tokens(tokens)))) => {
                    tokens.push(sampled);
                }
                (Event::Token(sampled), _) => {
                    ready.push_back((choice, GenerateEvent::Tokens(vec![sampled])));
                }
                (Event::Done(done), _) => {
                    let finish = ChatFinish::from_engine(done.reason)?;
                    let (tokens, timings) = (done.usage, done.timings);
                    let usage = ChatUsage { tokens, reasoning: 0, timings };
                    if let Some(scope) = &scope {
                        scope.record_usage(&usage);
                    }
                    ready.push_back((choice, GenerateEvent::Usage(usage)));
                    ready.push_back((choice, GenerateEvent::Finish(finish)));
                }
            }
            Ok(())
        }))
    }
}
