//! Chat: a conversation in, a stream of typed events out.

use std::collections::VecDeque;
use std::sync::Arc;

use muse_core::contract::{Conversation, Event, GroupId, Request, Segment, Token};
use muse_core::hash::hash64;

use super::answer_token_cache::AnswerTokenCache;
use super::choice_state::ChoiceState;
use super::compile_queue::CancelToken;
use super::event_stream::EventStream;
use super::prompt::PromptEncoder;
use super::settings::{check_token, random_u64};
use super::{
    ChatConstraints, ChatEvent, GenerationSettings, OutputStream, Permit, RequestLimits,
    RequestScope, Service, ServiceError, run_blocking,
};

const MAX_STOPS: usize = 16;
const MAX_STOP_BYTES: usize = 1024;

/// A conversation to continue.
#[derive(Clone, Debug, Default)]
pub struct ChatJob {
    /// The model's name; none means the one being served.
    pub model: Option<String>,
    /// Messages, tools and variables of the template.
    pub conversation: Conversation,
    /// Sampling and limits.
    pub settings: GenerationSettings,
    /// Texts that end the visible answer.
    pub stop: Vec<String>,
    /// Tokens that end the answer, beside the model's own.
    pub stop_ids: Vec<Token>,
    /// Whether to go on past the model's own stop tokens.
    pub ignore_model_stop: bool,
    /// How many answers to generate; none means 1.
    pub choices: Option<u32>,
    /// Whether calls are emitted in deltas while they are generated; none leaves it to the service.
    /// Takes the place of [`Conversation::growing_calls`].
    pub growing_tool_calls: Option<bool>,
    /// What answers, calls and reasoning must satisfy.
    pub constraints: ChatConstraints,
    /// What is tracked of the request, if anything.
    pub scope: Option<Arc<RequestScope>>,
}

impl Service {
    /// Continues a conversation.
    ///
    /// # Errors
    /// [`ServiceError`] when the request is wrong, does not fit or the queue is full. Once the
    /// stream exists, an error is its last item.
    pub async fn chat(&self, mut job: ChatJob) -> Result<OutputStream<ChatEvent>, ServiceError> {
        let permit = self.drain_guard.acquire()?;
        job.conversation.growing_calls =
            job.growing_tool_calls.unwrap_or(self.options.growing_tool_calls);
        self.check_model(job.model.as_deref())?;
        let service = self.clone();
        if !job.constraints.may_compile(&job.conversation) {
            let start = move || service.start_chat(&job, permit, &CancelToken::default());
            return run_blocking(start).await;
        }
        self.compile_queue.run(move |cancel| service.start_chat(&job, permit, cancel)).await
    }

    fn start_chat(
        &self,
        job: &ChatJob,
        permit: Permit,
        cancel: &CancelToken,
    ) -> Result<OutputStream<ChatEvent>, ServiceError> {
        let encoder = PromptEncoder::new(&self.app)?;
        let count = check(job, &self.options.limits)?;
        let mut prompt = encoder.encode(&job.conversation)?;
        if let Some(cache) = &self.answer_tokens {
            cache.substitute(&mut prompt);
        }
        self.check_prompt_length(prompt.len())?;
        let requests = self.requests(job, &prompt, count, cancel)?;
        let events =
            EventStream::open(self.app.engine.clone(), permit, job.scope.as_deref(), requests)?;
        let choice = |_| {
            let parser = encoder.template.output_parser(&job.conversation, &job.stop);
            let logprobs = job.settings.logprobs.is_some();
            ChoiceState::new(parser, logprobs, job.conversation.single_call)
        };
        let mut choices: Vec<ChoiceState> = (0..count).map(choice).collect();
        let (cache, mut answers) = (self.answer_tokens.clone(), vec![Vec::new(); count as usize]);
        let prompt_key = AnswerTokenCache::key(&prompt);
        let scope = job.scope.clone();
        if let Some(scope) = &scope {
            // The engine has a copy of the prompt for each choice; all else is freed.
            scope.memory.shrink_to(count as usize * size_of_val(prompt.as_slice()));
        }
        Ok(OutputStream::new(events, scope.clone(), move |events, index, event, ready| {
            let choice = &mut choices[index as usize];
            let mut emit = |event| {
                if let (ChatEvent::Usage(usage), Some(scope)) = (&event, &scope) {
                    scope.record_usage(usage);
                }
                push_joined(ready, index, event);
            };
            match event {
                Event::Prefill { done, total } => emit(ChatEvent::Progress { done, total }),
                Event::Token(sampled) => {
                    answers[index as usize].push(sampled.token);
                    if choice.push(sampled, &mut emit) {
                        events.cancel(index);
                    }
                }
                Event::Done(done) => {
                    if let Some(cache) = &cache {
                        cache.insert(prompt_key, &answers[index as usize]);
                    }
                    choice.finish(done, &mut emit)?;
                }
            }
            Ok(())
        }))
    }

    /// The engine's request for each choice. The first choice draws with the seed itself, the
    /// others with seeds derived from it.
    fn requests(
        &self,
        job: &ChatJob,
        prompt: &[Token],
        count: u32,
        cancel: &CancelToken,
    ) -> Result<Vec<Request>, ServiceError> {
        let app = &self.app;
        let (settings, limits) = (&job.settings, &self.options.limits);
        let sampling = settings.sampling(app)?;
        job.stop_ids.iter().try_for_each(|&token| check_token(app, "stop_token_ids", token))?;
        let own = if job.ignore_model_stop { &[] } else { app.stop.as_slice() };
        let stop = [own, &job.stop_ids].concat();
        // The choices take turns with other requests as one.
        let group = (count > 1).then(|| GroupId(random_u64()));
        let request = |choice: u32| {
            let mut sampling = sampling.clone();
            if choice > 0 {
                sampling.seed = hash64(sampling.seed, choice.into());
            }
            Ok(Request {
                prompt: vec![Segment::Tokens(prompt.to_vec())],
                sampling,
                stop: stop.clone(),
                max_tokens: limits.tokens(settings.max_tokens),
                min_tokens: settings.min_tokens,
                max_draft: settings.max_draft,
                logprobs: settings.logprobs,
                constraint: job.constraints.compile(app, &job.conversation, cancel)?,
                deadline: settings.deadline,
                priority: limits.priority(settings.priority),
                group,
            })
        };
        (0..count).map(request).collect()
    }
}

/// Checks what does not depend on the model. Returns the number of choices.
fn check(job: &ChatJob, limits: &RequestLimits) -> Result<u32, ServiceError> {
    if job.conversation.messages.is_empty() {
        let message = "found none; send at least one message";
        return Err(ServiceError::invalid_field("messages", message));
    }
    job.settings.check_limits()?;
    let stops = &job.stop;
    if stops.len() > MAX_STOPS {
        let message = format!("found {} texts; at most {MAX_STOPS} are watched for", stops.len());
        return Err(ServiceError::invalid_field("stop", message));
    }
    if let Some(stop) = stops.iter().find(|s| s.is_empty() || s.len() > MAX_STOP_BYTES) {
        let found = stop.len();
        let message =
            format!("found a text of {found} bytes; a stop text has 1 to {MAX_STOP_BYTES}");
        return Err(ServiceError::invalid_field("stop", message));
    }
    let (count, max) = (job.choices.unwrap_or(1), limits.max_choices);
    if (1..=max).contains(&count) {
        return Ok(count);
    }
    let message = format!("found {count}; ask for 1 to {max} answers");
    Err(ServiceError::invalid_field("choices", message))
}

/// Appends an event; text that follows text of the same choice and kind is joined to it, so that
/// events which wait together are sent together.
fn push_joined(ready: &mut VecDeque<(u32, ChatEvent)>, choice: u32, event: ChatEvent) {
    let last = ready.back_mut().filter(|(c, _)| *c == choice).map(|(_, event)| event);
    match (last, event) {
        (Some(ChatEvent::Reasoning(text)), ChatEvent::Reasoning(more)) => text.push_str(&more),
        (
            Some(ChatEvent::Content { text, tokens }),
            ChatEvent::Content { text: more, tokens: new },
        ) => {
            text.push_str(&more);
            tokens.extend(new);
        }
        (_, event) => ready.push_back((choice, event)),
    }
}
