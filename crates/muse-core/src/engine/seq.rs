//! One request while the engine has it: what it said, what it may still say, what it took.

use std::time::Duration;

use super::Limits;
use super::speculation::Pace;
use crate::contract::{
    Constraint, Done, Event, FinishReason, History, PAGE_TOKENS, Picked, Request, Sampling,
    Segment, SeqId, Sink, Timings, Token, TokenMask, Usage,
};
use crate::{Error, Result, sampler};

/// A sequence, waiting or active.
pub(super) struct Seq {
    pub(super) id: SeqId,
    pub(super) priority: i32,
    pub(super) sampling: Sampling,
    pub(super) logprobs: Option<u32>,
    pub(super) max_draft: usize,
    pub(super) constraint: Option<Box<dyn Constraint>>,
    /// On the engine's clock.
    pub(super) deadline: Option<Duration>,
    /// Prompt, completion, and during a step the guesses on trial.
    pub(super) tokens: Vec<Token>,
    pub(super) history: History,
    /// Rows of this step; 0 sits it out.
    pub(super) rows: usize,
    /// Guesses it may carry this step.
    pub(super) room: usize,
    /// Guesses on trial: the last of `tokens` and of `rows`.
    pub(super) guesses: usize,
    /// Guesses of this step that the target judged, and those of them that agreed.
    pub(super) verified: usize,
    pub(super) agreed: usize,
    /// Pages of its prefix that may still be looked for among what is kept elsewhere.
    pub(super) to_restore: usize,
    /// Whether the length of its drafts is the engine's to choose.
    pub(super) adapts: bool,
    pub(super) pace: Pace,
    /// First of its masks of this step.
    pub(super) mask: usize,
    /// Rows of this step that stay.
    pub(super) kept: usize,
    /// Choices of this step, not yet emitted.
    pub(super) chosen: Vec<Picked>,
    /// Set once it is to end; the next sweep or the end of the step ends it.
    pub(super) finish: Option<FinishReason>,
    prompt: usize,
    stop: Vec<Token>,
    max_tokens: u32,
    sink: Sink,
    /// The sink has not said `Break`.
    listens: bool,
    usage: Usage,
    /// Prompt rows told of.
    told: Option<u32>,
    submitted: Duration,
    started: Option<Duration>,
    first: Option<Duration>,
    last: Duration,
}

impl Seq {
    /// A request that these limits admit.
    pub(super) fn new(
        id: SeqId,
        request: Request,
        sink: Sink,
        limits: &Limits,
        now: Duration,
    ) -> Self {
        let mut tokens = Vec::new();
        for segment in &request.prompt {
            let Segment::Tokens(part) = segment else { unreachable!("pictures were refused") };
            tokens.extend_from_slice(part);
        }
        let prompt = tokens.len();
        let room = limits.positions() - prompt as u32;
        let max_tokens = request.max_tokens.unwrap_or(room).min(room);
        // Enough for all that comes: a step is not to allocate.
        tokens.reserve_exact(max_tokens as usize + limits.draft + 1);
        let mut history = History::default();
        if sampler::counts_history(&request.sampling) {
            history.prompt.extend(&tokens);
            history.completion.reserve(max_tokens.min(4096) as usize);
        }
        Self {
            id,
            priority: request.priority,
            sampling: request.sampling,
            logprobs: request.logprobs,
            max_draft: request.max_draft.map_or(usize::MAX, |max| max as usize),
            constraint: request.constraint,
            deadline: request.deadline.map(|patience| now.saturating_add(patience)),
            tokens,
            history,
            rows: 0,
            room: 0,
            guesses: 0,
            verified: 0,
            agreed: 0,
            to_restore: prompt.div_ceil(PAGE_TOKENS),
            adapts: false,
            pace: Pace::new(limits.draft),
            mask: 0,
            kept: 0,
            chosen: Vec::with_capacity(limits.draft + 1),
            finish: None,
            prompt,
            stop: request.stop,
            max_tokens,
            sink,
            listens: true,
            usage: Usage {
                prompt: prompt as u32,
                accepted: Vec::with_capacity(max_tokens as usize),
                ..Usage::default()
            },
            told: None,
            submitted: now,
            started: None,
            first: None,
            last: now,
        }
    }

    /// Higher priority first, then the older.
    pub(super) fn rank(&self) -> (std::cmp::Reverse<i32>, SeqId) {
        (std::cmp::Reverse(self.priority), self.id)
    }

    fn completion(&self) -> u32 {
        (self.tokens.len() - self.guesses - self.prompt) as u32
    }

    /// Whether it has its first token: what its next row follows can be guessed at.
    pub(super) fn speaks(&self) -> bool {
        self.completion() > 0
    }

    /// The most guesses worth verifying: one token comes without any.
    pub(super) fn guess_room(&self) -> usize {
        let room = (self.max_tokens - self.completion()).saturating_sub(1) as usize;
        if self.speaks() { room.min(self.max_draft) } else { 0 }
    }

    /// It runs from now on. `cached` of its rows need no run.
    pub(super) fn start(&mut self, cached: u32, now: Duration) {
        if self.started.is_none() {
            self.started = Some(now);
            self.usage.cached = cached.min(self.prompt as u32);
        }
        self.tell_prefill(cached);
    }

    /// Tells how far the prompt is, while there is news.
    pub(super) fn tell_prefill(&mut self, done: u32) {
        let total = self.prompt as u32;
        let done = done.min(total);
        if self.told.is_none_or(|told| told < done) {
            self.told = Some(done);
            self.emit(Event::Prefill { done, total });
        }
    }

    /// Judges a step's choices, one for each guess and one more: keeps the guesses that agree and
    /// the choice behind them, as far as the request goes. Sets `kept` and `finish`.
    pub(super) fn judge(&mut self, choices: impl Iterator<Item = Picked>, now: Duration) {
        let trial = self.tokens.len() - self.guesses;
        let before = self.completion();
        let mut agreeing = true;
        for (i, picked) in choices.enumerate() {
            if !agreeing {
                continue;
            }
            let token = picked.token;
            agreeing = i < self.guesses && self.tokens[trial + i] == token;
            self.chosen.push(picked);
            if self.stop.contains(&token) {
                self.finish = Some(FinishReason::Stop(token));
            } else if before + self.chosen.len() as u32 == self.max_tokens {
                self.finish = Some(FinishReason::Length);
            }
            agreeing &= self.finish.is_none();
        }
        let said = self.chosen.len();
        assert!(said > 0, "a row with scores has a choice");
        self.kept = self.rows - self.guesses + said - 1;
        self.verified = self.guesses;
        if self.guesses > 0 {
            let last_was_guess = said <= self.guesses
                && self.tokens[trial + said - 1] == self.chosen[said - 1].token;
            let accepted = said - usize::from(!last_was_guess);
            self.usage.drafted += self.guesses as u32;
            self.usage.accepted.push(accepted as u32);
            self.agreed = accepted;
        }
        self.forget_guesses();
        self.tokens.extend(self.chosen.iter().map(|p| p.token));
        self.first.get_or_insert(now);
        self.last = now;
    }

    /// Takes this step's choices into penalties and grammar, then hands them out.
    pub(super) fn speak(&mut self) {
        let counts = sampler::counts_history(&self.sampling);
        let mut chosen = std::mem::take(&mut self.chosen);
        for picked in chosen.drain(..) {
            if picked.logprob.is_nan() {
                let message = "the model's scores are not numbers; its files are damaged, or it \
                               was converted badly: get them again";
                self.finish = Some(FinishReason::Failed(Error::Corrupt(message.to_owned())));
                break;
            }
            if counts {
                *self.history.completion.entry(picked.token).or_insert(0) += 1;
            }
            if let Some(constraint) = &mut self.constraint
                && let Err(error) = constraint.accept(picked.token)
            {
                self.finish = Some(FinishReason::Failed(error));
                break;
            }
            if !self.listens {
                break;
            }
            self.usage.completion += 1;
            self.emit(Event::Token(picked));
        }
        chosen.clear();
        self.chosen = chosen;
    }

    fn emit(&mut self, event: Event) {
        if (self.sink)(event).is_break() {
            self.listens = false;
            self.finish = Some(FinishReason::Cancelled);
        }
    }

    /// Says how it ended. Nothing follows, by construction.
    pub(super) fn end(mut self, now: Duration) {
        let reason = self.finish.take().expect("only what is to end is ended");
        let started = self.started.unwrap_or(now);
        let first = self.first.unwrap_or(now);
        let timings = Timings {
            queued: started.saturating_sub(self.submitted),
            prefill: first.saturating_sub(started),
            decode: if self.first.is_some() {
                self.last.saturating_sub(first)
            } else {
                Duration::ZERO
            },
        };
        // Nothing is left to cancel.
        let _ = (self.sink)(Event::Done(Done { reason, usage: self.usage, timings }));
    }

    /// It cannot go on.
    pub(super) fn give_up(&mut self, error: Error) {
        self.forget_guesses();
        self.rows = 0;
        self.finish = Some(FinishReason::Failed(error));
    }

    /// Puts guesses on trial.
    pub(super) fn guess(&mut self, guesses: impl Iterator<Item = Token>) {
        let before = self.tokens.len();
        self.tokens.extend(guesses.take(self.room));
        self.guesses = self.tokens.len() - before;
    }

    /// Takes the guesses back.
    pub(super) fn forget_guesses(&mut self) {
        self.tokens.truncate(self.tokens.len() - self.guesses);
        self.guesses = 0;
    }

    /// Crops the guesses to what the grammar admits. Where it admits none it may itself know what
    /// comes: that is then the guess.
    pub(super) fn constrain_guesses(&mut self) -> Result<()> {
        let Some(constraint) = &mut self.constraint else { return Ok(()) };
        let trial = self.tokens.len() - self.guesses;
        let legal = constraint.legal_prefix(&self.tokens[trial..])?;
        self.tokens.truncate(trial + legal.min(self.guesses));
        self.guesses = self.tokens.len() - trial;
        if self.guesses == 0 {
            while self.guesses < self.room
                && let Some(token) = constraint.forced()?
            {
                constraint.accept(token)?;
                self.tokens.push(token);
                self.guesses += 1;
            }
            constraint.rollback(self.guesses)?;
        }
        Ok(())
    }

    /// Writes the mask of every choice of this step, one for each guess and one more. A guess that
    /// leads where nothing is allowed is not tried: whether it comes to that, the target says.
    pub(super) fn fill_masks(
        &mut self,
        masks: &mut Vec<TokenMask>,
        used: &mut usize,
    ) -> Result<()> {
        let Some(constraint) = &mut self.constraint else { return Ok(()) };
        let trial = self.tokens.len() - self.guesses;
        self.mask = *used;
        let mut accepted = 0;
        loop {
            if masks.len() == *used {
                masks.push(TokenMask::default());
            }
            match write_mask(constraint.as_mut(), &mut masks[*used], trial + accepted) {
                Ok(()) => *used += 1,
                Err(error) if accepted == 0 => return Err(error),
                Err(_) => {
                    let dropped = self.guesses - (accepted - 1);
                    self.tokens.truncate(self.tokens.len() - dropped);
                    self.guesses -= dropped;
                    self.rows -= dropped;
                    break;
                }
            }
            if accepted == self.guesses {
                break;
            }
            constraint.accept(self.tokens[trial + accepted])?;
            accepted += 1;
        }
        constraint.rollback(accepted)
    }
}

fn write_mask(
    constraint: &mut dyn Constraint,
    mask: &mut TokenMask,
    position: usize,
) -> Result<()> {
    constraint.mask(mask)?;
    if mask.words.iter().all(|word| *word == 0) {
        return Err(Error::Invalid(format!(
            "the grammar allows no token at position {position}: it contradicts itself"
        )));
    }
    Ok(())
}
