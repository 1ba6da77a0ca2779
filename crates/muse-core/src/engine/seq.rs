//! One request while the engine has it: what it said, what it may still say, what it took.

use std::time::Duration;

use super::Limits;
use super::speculation::DraftStats;
use crate::contract::{
    Constraint, Done, Event, FinishReason, History, KV_BLOCK_SIZE, Request, Sampled, Sampling,
    Segment, SeqId, Sink, Timings, Token, TokenMask, Usage,
};
use crate::{Error, Result, sampler};

/// A sequence, waiting or active.
pub(super) struct Sequence {
    pub(super) id: SeqId,
    pub(super) priority: i32,
    pub(super) sampling: Sampling,
    pub(super) logprobs: Option<u32>,
    pub(super) max_draft: usize,
    pub(super) constraint: Option<Box<dyn Constraint>>,
    /// On the engine's clock.
    pub(super) deadline: Option<Duration>,
    /// Prompt, completion, and during a step the drafts on trial.
    pub(super) tokens: Vec<Token>,
    pub(super) history: History,
    /// Rows of this step; 0 sits it out.
    pub(super) num_tokens: usize,
    /// Draft tokens it may carry this step.
    pub(super) draft_budget: usize,
    /// Draft tokens on trial: the last of `tokens` and of `rows`.
    pub(super) drafts: usize,
    /// Draft tokens of this step that the target judged, and those of them that accepted.
    pub(super) verified: usize,
    pub(super) accepted: usize,
    /// KV blocks of its prefix that may still be looked for among what is kept elsewhere.
    pub(super) to_restore: usize,
    /// Whether the length of its drafts is the engine's to choose.
    pub(super) adapts: bool,
    pub(super) draft_stats: DraftStats,
    /// First of its masks of this step.
    pub(super) mask: usize,
    /// Rows of this step that stay.
    pub(super) kept: usize,
    /// Choices of this step, not yet emitted.
    pub(super) chosen: Vec<Sampled>,
    /// Set once it is to end; the next reap_finished or the end of the step ends it.
    pub(super) finish: Option<FinishReason>,
    prompt: usize,
    stop: Vec<Token>,
    max_tokens: u32,
    sink: Sink,
    /// The sink has not said `Break`.
    listens: bool,
    usage: Usage,
    /// Prompt rows reported of.
    reported: Option<u32>,
    submitted: Duration,
    started: Option<Duration>,
    first: Option<Duration>,
    last: Duration,
}

impl Sequence {
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
            num_tokens: 0,
            draft_budget: 0,
            drafts: 0,
            verified: 0,
            accepted: 0,
            to_restore: prompt.div_ceil(KV_BLOCK_SIZE),
            adapts: false,
            draft_stats: DraftStats::new(limits.draft),
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
            reported: None,
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
        (self.tokens.len() - self.drafts - self.prompt) as u32
    }

    /// Whether it has its first token: what its next row follows can be guessed at.
    pub(super) fn is_decoding(&self) -> bool {
        self.completion() > 0
    }

    /// The most drafts worth verifying: one token comes without any.
    pub(super) fn max_draft_tokens(&self) -> usize {
        let room = (self.max_tokens - self.completion()).saturating_sub(1) as usize;
        if self.is_decoding() { room.min(self.max_draft) } else { 0 }
    }

    /// It runs from now on. `cached` of its rows need no run.
    pub(super) fn start(&mut self, cached: u32, now: Duration) {
        if self.started.is_none() {
            self.started = Some(now);
            self.usage.cached = cached.min(self.prompt as u32);
        }
        self.report_prefill(cached);
    }

    /// Tells how far the prompt is, while there is news.
    pub(super) fn report_prefill(&mut self, done: u32) {
        let total = self.prompt as u32;
        let done = done.min(total);
        if self.reported.is_none_or(|reported| reported < done) {
            self.reported = Some(done);
            self.send(Event::Prefill { done, total });
        }
    }

    /// Judges a step's choices, one for each draft and one more: keeps the drafts that agree and
    /// the choice behind them, as far as the request goes. Sets `kept` and `finish`.
    pub(super) fn verify(&mut self, choices: impl Iterator<Item = Sampled>, now: Duration) {
        let trial = self.tokens.len() - self.drafts;
        let before = self.completion();
        let mut accepting = true;
        for (i, sampled) in choices.enumerate() {
            if !accepting {
                continue;
            }
            let token = sampled.token;
            accepting = i < self.drafts && self.tokens[trial + i] == token;
            self.chosen.push(sampled);
            if self.stop.contains(&token) {
                self.finish = Some(FinishReason::Stop(token));
            } else if before + self.chosen.len() as u32 == self.max_tokens {
                self.finish = Some(FinishReason::Length);
            }
            accepting &= self.finish.is_none();
        }
        let said = self.chosen.len();
        assert!(said > 0, "a row with logits has a choice");
        self.kept = self.num_tokens - self.drafts + said - 1;
        self.verified = self.drafts;
        if self.drafts > 0 {
            let last_was_guess =
                said <= self.drafts && self.tokens[trial + said - 1] == self.chosen[said - 1].token;
            let accepted = said - usize::from(!last_was_guess);
            self.usage.drafted += self.drafts as u32;
            self.usage.accepted.push(accepted as u32);
            self.accepted = accepted;
        }
        self.discard_draft();
        self.tokens.extend(self.chosen.iter().map(|p| p.token));
        self.first.get_or_insert(now);
        self.last = now;
    }

    /// Takes this step's choices into penalties and grammar, then hands them out.
    pub(super) fn emit(&mut self) {
        let counts = sampler::counts_history(&self.sampling);
        let mut chosen = std::mem::take(&mut self.chosen);
        for sampled in chosen.drain(..) {
            if sampled.logprob.is_nan() {
                let message = "the model's logits are not numbers; its files are damaged, or it \
                               was converted badly: get them again";
                self.finish = Some(FinishReason::Failed(Error::Corrupt(message.to_owned())));
                break;
            }
            if counts {
                *self.history.completion.entry(sampled.token).or_insert(0) += 1;
            }
            if let Some(constraint) = &mut self.constraint
                && let Err(error) = constraint.accept(sampled.token)
            {
                self.finish = Some(FinishReason::Failed(error));
                break;
            }
            if !self.listens {
                break;
            }
            self.usage.completion += 1;
            self.send(Event::Token(sampled));
        }
        chosen.clear();
        self.chosen = chosen;
    }

    fn send(&mut self, event: Event) {
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
    pub(super) fn abort(&mut self, error: Error) {
        self.discard_draft();
        self.num_tokens = 0;
        self.finish = Some(FinishReason::Failed(error));
    }

    /// Puts drafts on trial.
    pub(super) fn draft(&mut self, drafts: impl Iterator<Item = Token>) {
        let before = self.tokens.len();
        self.tokens.extend(drafts.take(self.draft_budget));
        self.drafts = self.tokens.len() - before;
    }

    /// Takes the drafts back.
    pub(super) fn discard_draft(&mut self) {
        self.tokens.truncate(self.tokens.len() - self.drafts);
        self.drafts = 0;
    }

    /// Crops the drafts to what the grammar admits. Where it admits none it may itself know what
    /// comes: that is then the draft.
    pub(super) fn constrain_draft(&mut self) -> Result<()> {
        let Some(constraint) = &mut self.constraint else { return Ok(()) };
        let trial = self.tokens.len() - self.drafts;
        let legal = constraint.legal_prefix(&self.tokens[trial..])?;
        self.tokens.truncate(trial + legal.min(self.drafts));
        self.drafts = self.tokens.len() - trial;
        if self.drafts == 0 {
            while self.drafts < self.draft_budget
                && let Some(token) = constraint.forced()?
            {
                constraint.accept(token)?;
                self.tokens.push(token);
                self.drafts += 1;
            }
            constraint.rollback(self.drafts)?;
        }
        Ok(())
    }

    /// Writes the mask of every choice of this step, one for each draft and one more. A draft that
    /// leads where nothing is allowed is not tried: whether it comes to that, the target says.
    pub(super) fn fill_masks(
        &mut self,
        masks: &mut Vec<TokenMask>,
        used: &mut usize,
    ) -> Result<()> {
        let Some(constraint) = &mut self.constraint else { return Ok(()) };
        let trial = self.tokens.len() - self.drafts;
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
                    let dropped = self.drafts - (accepted - 1);
                    self.tokens.truncate(self.tokens.len() - dropped);
                    self.drafts -= dropped;
                    self.num_tokens -= dropped;
                    break;
                }
            }
            if accepted == self.drafts {
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
