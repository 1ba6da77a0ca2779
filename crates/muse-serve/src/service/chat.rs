//! Chat: a conversation in, a stream of typed events out.

use std::collections::VecDeque;
use std::sync::Arc;

use muse_core::contract::{
    Conversation, Event, PromptPart, PromptTemplate, Request, Segment, Token, Tokenizer,
};
use muse_core::hash::hash64;

use super::answer::Answer;
use super::choice::Choice;
use super::feed::Feed;
use super::settings::known;
use super::{ChatEvent, Pass, Refusal, Rules, Service, Settings, Wanted, aside};
use crate::app::App;

/// The most answers to one request.
const MAX_CHOICES: u32 = 16;
/// The most stop texts, and the most bytes of one.
const MAX_STOPS: usize = 16;
const MAX_STOP_BYTES: usize = 1024;
/// Bytes of a text that is read, whatever there is room for.
const SHORT_BYTES: usize = 256 << 10;

/// A conversation to continue.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// The model's name; the one being served when none.
    pub model: Option<String>,
    /// What was said so far.
    pub conversation: Conversation,
    /// Bounds and sampling.
    pub settings: Settings,
    /// Texts that end the visible answer.
    pub stop: Vec<String>,
    /// Tokens that end the answer, beside the model's own.
    pub stop_ids: Vec<Token>,
    /// How many answers to give; none means 1.
    pub choices: Option<u32>,
    /// What answers, calls and reasoning are held to.
    pub rules: Rules,
}

/// A prompt as the model reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Its text, marks spelled in full.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<Token>,
}

/// How a model reads and writes text.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) tokenizer: Arc<dyn Tokenizer>,
    template: Arc<dyn PromptTemplate>,
    room: u32,
}

impl Reader {
    pub(super) fn of(app: &App) -> Result<Self, Refusal> {
        match (&app.tokenizer, &app.template) {
            (Some(tokenizer), Some(template)) => {
                let room = app.model.max_positions;
                Ok(Self { tokenizer: tokenizer.clone(), template: template.clone(), room })
            }
            _ => Err(Refusal::NoText),
        }
    }

    /// The tokens of a text, marks in it read as text.
    pub(super) fn read(&self, text: &str) -> Result<Vec<Token>, Refusal> {
        self.check_text(text.len())?;
        let mut tokens = Vec::new();
        self.tokenizer.encode(text, &mut tokens);
        Ok(tokens)
    }

    /// Refuses what cannot fit before it is read: reading megabytes takes minutes and gigabytes.
    fn check_text(&self, bytes: usize) -> Result<(), Refusal> {
        if bytes <= SHORT_BYTES {
            return Ok(());
        }
        let mut spelled = Vec::new();
        let length = |token| {
            spelled.clear();
            self.tokenizer.decode(Token(token), &mut spelled);
            spelled.len()
        };
        let longest = (0..self.tokenizer.vocab_size() as u32).map(length).max().unwrap_or(0);
        if bytes <= longest.saturating_mul(self.room as usize) {
            return Ok(());
        }
        Err(Refusal::TooMuchText { bytes, room: self.room })
    }

    pub(super) fn render(&self, conversation: &Conversation) -> Result<Prompt, Refusal> {
        let mut prompt = Prompt { text: String::new(), tokens: Vec::new() };
        let pieces = self.template.render(conversation)?;
        self.check_text(
            pieces
                .iter()
                .map(|piece| if let PromptPart::Text(t) = piece { t.len() } else { 0 })
                .sum(),
        )?;
        for piece in pieces {
            match piece {
                PromptPart::Text(text) => {
                    self.tokenizer.encode(&text, &mut prompt.tokens);
                    prompt.text.push_str(&text);
                }
                PromptPart::Special(mark) => {
                    let Some(token) = self.tokenizer.special_token(mark) else {
                        let message = format!("the vocabulary has no {mark}; check the tokenizer");
                        return Err(muse_core::Error::Corrupt(message).into());
                    };
                    prompt.tokens.push(token);
                    prompt.text.push_str(mark);
                }
                PromptPart::Image(_) | PromptPart::Video(_) => {
                    let message = "pictures and videos cannot be read by this build; send text";
                    return Err(muse_core::Error::Unsupported(message.to_owned()).into());
                }
            }
        }
        Ok(prompt)
    }
}

impl Service {
    /// Continues a conversation.
    ///
    /// # Errors
    /// [`Refusal`] when the request is wrong, does not fit or there is no place for it. Once the
    /// stream exists, a refusal is its last item.
    pub async fn chat(&self, ask: Ask) -> Result<Answer<ChatEvent>, Refusal> {
        let pass = self.gate.enter()?;
        self.check_model(ask.model.as_deref())?;
        let service = self.clone();
        if !ask.rules.may_compile(&ask.conversation) {
            return aside(move || service.start_chat(&ask, pass, &Wanted::default())).await;
        }
        self.workshop.run(move |wanted| service.start_chat(&ask, pass, wanted)).await
    }

    fn start_chat(
        &self,
        ask: &Ask,
        pass: Pass,
        wanted: &Wanted,
    ) -> Result<Answer<ChatEvent>, Refusal> {
        let app = &self.app;
        let reader = Reader::of(app)?;
        let count = check(ask)?;
        let mut prompt = reader.render(&ask.conversation)?.tokens;
        if let Some(turns) = &self.turns {
            turns.recall(&mut prompt);
        }
        self.check_room(prompt.len())?;
        let sampling = ask.settings.sampling(app)?;
        ask.stop_ids.iter().try_for_each(|&token| known(app, "stop_token_ids", token))?;
        let stop = [app.stop.as_slice(), &ask.stop_ids].concat();
        let constraints = (0..count).map(|_| ask.rules.constraint(app, &ask.conversation, wanted));
        let constraints: Vec<_> = constraints.collect::<Result<_, _>>()?;
        let requests = (0u64..).zip(constraints).map(|(i, constraint)| {
            let mut sampling = sampling.clone();
            if i > 0 {
                sampling.seed = hash64(sampling.seed, i);
            }
            Request {
                prompt: vec![Segment::Tokens(prompt.clone())],
                sampling,
                stop: stop.clone(),
                max_tokens: ask.settings.max_tokens,
                max_draft: ask.settings.max_draft,
                logprobs: ask.settings.logprobs,
                constraint,
                deadline: ask.settings.deadline,
                priority: ask.settings.priority,
            }
        });
        let feed = Feed::open(app.engine.clone(), pass, requests)?;
        let choice = |_| {
            let listener = reader.template.output_parser(&ask.conversation, &ask.stop);
            Choice::new(listener, ask.settings.logprobs.is_some(), ask.conversation.single_call)
        };
        let mut choices: Vec<Choice> = (0..count).map(choice).collect();
        let (turns, mut said) = (self.turns.clone(), vec![Vec::new(); count as usize]);
        Ok(Answer::new(feed, move |feed, index, event, ready| {
            let choice = &mut choices[index as usize];
            let mut emit = |event| push(ready, index, event);
            match event {
                Event::Prefill { done, total } => emit(ChatEvent::Progress { done, total }),
                Event::Token(picked) => {
                    said[index as usize].push(picked.token);
                    if choice.push(picked, &mut emit) {
                        feed.cancel(index);
                    }
                }
                Event::Done(done) => {
                    if let Some(turns) = &turns {
                        turns.remember(&prompt, &said[index as usize]);
                    }
                    choice.done(done, &mut emit)?;
                }
            }
            Ok(())
        }))
    }
}

/// Checks what does not need the model. Returns the number of choices.
fn check(ask: &Ask) -> Result<u32, Refusal> {
    if ask.conversation.messages.is_empty() {
        return Err(Refusal::field("messages", "found none; send at least one message"));
    }
    ask.settings.check_limits()?;
    let stops = &ask.stop;
    if stops.len() > MAX_STOPS {
        let message = format!("found {} texts; at most {MAX_STOPS} are watched for", stops.len());
        return Err(Refusal::field("stop", message));
    }
    if let Some(stop) = stops.iter().find(|s| s.is_empty() || s.len() > MAX_STOP_BYTES) {
        let found = stop.len();
        let message =
            format!("found a text of {found} bytes; a stop text has 1 to {MAX_STOP_BYTES}");
        return Err(Refusal::field("stop", message));
    }
    match ask.choices.unwrap_or(1) {
        count @ 1..=MAX_CHOICES => Ok(count),
        count => {
            let message = format!("found {count}; ask for 1 to {MAX_CHOICES} answers");
            Err(Refusal::field("choices", message))
        }
    }
}

/// Appends an event, joining text to text: what waits together travels together.
fn push(ready: &mut VecDeque<(u32, ChatEvent)>, choice: u32, event: ChatEvent) {
    let before = ready.back_mut().filter(|(c, _)| *c == choice).map(|(_, event)| event);
    match (before, event) {
        (Some(ChatEvent::Think(text)), ChatEvent::Think(more)) => text.push_str(&more),
        (Some(ChatEvent::Say { text, tokens }), ChatEvent::Say { text: more, tokens: fresh }) => {
            text.push_str(&more);
            tokens.extend(fresh);
        }
        (_, event) => ready.push_back((choice, event)),
    }
}
