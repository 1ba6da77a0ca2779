//! Generation on token ids, with no regard to their meaning.

use muse_core::contract::{Event, Request, Sampled, Segment, Token};

use super::answer::Answer;
use super::choice::{End, Spent, ended};
use super::feed::Feed;
use super::settings::known;
use super::{Refusal, Service, Settings};

/// A prompt to complete.
#[derive(Clone, Debug, Default)]
pub struct Complete {
    /// The model's name; the one being served when none.
    pub model: Option<String>,
    /// At least one token.
    pub prompt: Vec<Token>,
    /// Bounds and sampling.
    pub settings: Settings,
    /// Tokens that end the completion, beside the model's own.
    pub stop: Vec<Token>,
    /// Go on past the model's own stop tokens.
    pub ignore_model_stop: bool,
}

/// What happens: progress, tokens, one `Spent`, one `End`.
#[derive(Clone, Debug, PartialEq)]
pub enum GenerateEvent {
    /// Prompt tokens that are through the model, of how many.
    Progress {
        /// Tokens done.
        done: u32,
        /// All tokens.
        total: u32,
    },
    /// More tokens, at least one.
    Tokens(Vec<Sampled>),
    /// What it took; `reasoning` is 0, nobody listens.
    Spent(Spent),
    /// The end.
    End(End),
}

impl Service {
    /// Completes a prompt.
    ///
    /// # Errors
    /// As [`Service::chat`].
    pub fn generate(&self, complete: Complete) -> Result<Answer<GenerateEvent>, Refusal> {
        let pass = self.gate.enter()?;
        let app = &self.app;
        self.check_model(complete.model.as_deref())?;
        let Complete { prompt, settings, mut stop, .. } = complete;
        if prompt.is_empty() {
            return Err(Refusal::field("prompt_ids", "found none; send at least one token"));
        }
        prompt.iter().try_for_each(|&token| known(app, "prompt_ids", token))?;
        stop.iter().try_for_each(|&token| known(app, "stop_ids", token))?;
        self.check_room(prompt.len())?;
        settings.check_limits()?;
        if !complete.ignore_model_stop {
            stop.extend(&app.stop);
        }
        let request = Request {
            prompt: vec![Segment::Tokens(prompt)],
            sampling: settings.sampling(app)?,
            stop,
            max_tokens: settings.max_tokens,
            max_draft: settings.max_draft,
            logprobs: settings.logprobs,
            constraint: None,
            deadline: settings.deadline,
            priority: settings.priority,
        };
        let feed = Feed::open(app.engine.clone(), pass, [request])?;
        Ok(Answer::new(feed, |_, choice, event, ready| {
            match (event, ready.back_mut()) {
                (Event::Prefill { done, total }, _) => {
                    ready.push_back((choice, GenerateEvent::Progress { done, total }));
                }
                (Event::Token(picked), Some((_, GenerateEvent::Tokens(tokens)))) => {
                    tokens.push(picked);
                }
                (Event::Token(picked), _) => {
                    ready.push_back((choice, GenerateEvent::Tokens(vec![picked])));
                }
                (Event::Done(done), _) => {
                    let end = ended(done.reason)?;
                    let spent = Spent { usage: done.usage, reasoning: 0, timings: done.timings };
                    ready.push_back((choice, GenerateEvent::Spent(spent)));
                    ready.push_back((choice, GenerateEvent::End(end)));
                }
            }
            Ok(())
        }))
    }
}
