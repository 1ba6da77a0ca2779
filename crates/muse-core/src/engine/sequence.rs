//! A sequence: one request while the engine has it, with its tokens, its bounds and its usage.

use std::ops::Range;
use std::time::Duration;

use super::Limits;
use super::draft_stats::DraftStats;
use crate::contract::{
    Constraint, Done, Event, FinishReason, GroupId, History, KV_BLOCK_SIZE, Patches, PositionKey,
    Request, Sampled, Sampling, Segment, SeqId, Sink, Timings, Token, TokenMask, Usage, Verify,
};
use crate::{Error, Result, sampler};

/// The most waiting time that a priority is worth, and the priority that is worth half of it.
const MAX_PRIORITY_CREDIT: Duration = Duration::from_secs(60);
const HALF_PRIORITY: f64 = 5.0;

/// Sequences that share one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// A sequence of its own.
    Single(SeqId),
    /// Those of a group.
    Shared(GroupId),
}

/// A picture of a prompt.
pub(super) struct Picture {
    pub(super) patches: Patches,
    /// One for each of its rows.
    pub(super) positions: Range<usize>,
}

/// A sequence, waiting or active. Times are on the engine's clock.
pub(super) struct Sequence {
    pub(super) id: SeqId,
    pub(super) group: Group,
    /// Active sequences of its group that rank before it, while it is active.
    pub(super) group_index: usize,
    /// Nanoseconds at which it was submitted, minus the waiting time that its priority is worth.
    pub(super) arrival: i64,
    /// Offloaded blocks of its prefix are being loaded or its pictures encoded: others may be
    /// admitted before it.
    pub(super) preparing: bool,
    pub(super) sampling: Sampling,
    pub(super) logprobs: Option<u32>,
    pub(super) max_draft: usize,
    pub(super) constraint: Option<Box<dyn Constraint>>,
    pub(super) deadline: Option<Duration>,
    /// Prompt, completion, and during a step its draft tokens. Positions of pictures hold any token.
    pub(super) tokens: Vec<Token>,
    /// Pictures of the prompt, in order of their positions.
    pub(super) pictures: Vec<Picture>,
    pub(super) history: History,
    /// Tokens that it runs in this step; 0 when it runs none.
    pub(super) num_tokens: usize,
    /// The most draft tokens of this step.
    pub(super) draft_budget: usize,
    /// Draft tokens of this step: the last of `tokens`.
    pub(super) drafts: usize,
    /// Draft tokens that this step verified, and those of them that were accepted.
    pub(super) verified: usize,
    pub(super) accepted: usize,
    /// KV blocks of its prefix that may still be looked for in the offload store.
    pub(super) to_restore: usize,
    /// Whether the engine chooses the number of its draft tokens.
    pub(super) adaptive: bool,
    pub(super) draft_stats: DraftStats,
    /// Index of its first token mask of this step, and their number: one for each of the first
    /// tokens to be sampled.
    pub(super) first_mask: usize,
    pub(super) num_masks: usize,
    /// Tokens of this step that stay.
    pub(super) kept: usize,
    /// Tokens sampled in this step, not yet emitted.
    pub(super) sampled: Vec<Sampled>,
    /// Set once it has to end; it ends with the step or at the beginning of the next one.
    pub(super) finish: Option<FinishReason>,
    prompt_len: usize,
    stop: Vec<Token>,
    min_tokens: u32,
    max_tokens: u32,
    sink: Sink,
    /// Whether the sink still takes events: it has not returned `Break`.
    sink_open: bool,
    usage: Usage,
    /// Prompt tokens of the last [`Event::Prefill`].
    reported: Option<u32>,
    submitted: Duration,
    started: Option<Duration>,
    first_token: Option<Duration>,
    last_token: Duration,
}

impl Sequence {
    /// The sequence of a request that passed [`Limits::check`].
    pub(super) fn new(
        id: SeqId,
        request: Request,
        sink: Sink,
        limits: &Limits,
        now: Duration,
    ) -> Self {
        let (mut tokens, pictures) = prompt_positions(request.prompt, limits);
        let prompt_len = tokens.len();
        let left = limits.positions() - prompt_len as u32;
        let max_tokens = request.max_tokens.unwrap_or(left).min(left);
        // Enough for the whole completion: a step does not allocate.
        tokens.reserve_exact(max_tokens as usize + limits.draft + 1);
        let mut history = History::default();
        if sampler::counts_history(&request.sampling) {
            let text = |(position, _): &(usize, _)| picture_at(&pictures, *position).is_none();
            history.prompt.extend(tokens.iter().enumerate().filter(text).map(|(_, token)| token));
            history.completion.reserve(max_tokens.min(4096) as usize);
        }
        Self {
            id,
            group: request.group.map_or(Group::Single(id), Group::Shared),
            group_index: 0,
            arrival: now.as_nanos() as i64 - priority_credit(request.priority),
            preparing: false,
            sampling: request.sampling,
            logprobs: request.logprobs,
            max_draft: request.max_draft.map_or(usize::MAX, |max| max as usize),
            constraint: request.constraint,
            deadline: request.deadline.map(|patience| now.saturating_add(patience)),
            tokens,
            pictures,
            history,
            num_tokens: 0,
            draft_budget: 0,
            drafts: 0,
            verified: 0,
            accepted: 0,
            to_restore: prompt_len.div_ceil(KV_BLOCK_SIZE),
            adaptive: false,
            draft_stats: DraftStats::new(limits.draft),
            first_mask: 0,
            num_masks: 0,
            kept: 0,
            sampled: Vec::with_capacity(limits.draft + 1),
            finish: None,
            prompt_len,
            stop: request.stop,
            min_tokens: request.min_tokens,
            max_tokens,
            sink,
            sink_open: true,
            usage: Usage {
                prompt: prompt_len as u32,
                verifies: Vec::with_capacity(max_tokens as usize),
                ..Usage::default()
            },
            reported: None,
            submitted: now,
            started: None,
            first_token: None,
            last_token: now,
        }
    }

    /// Order of active sequences, best first: the first of every group, then the second, and among
    /// those the one that waited longest, with its priority counted as waiting time. The last one
    /// is preempted first.
    pub(super) fn rank(&self) -> (usize, i64, SeqId) {
        (self.group_index, self.arrival, self.id)
    }

    /// Replaces `out` by the prefix keys of its tokens at `positions`.
    pub(super) fn keys(&self, positions: Range<usize>, out: &mut Vec<PositionKey>) {
        out.clear();
        out.extend(positions.map(|position| match picture_at(&self.pictures, position) {
            None => PositionKey::Token(self.tokens[position]),
            Some(picture) => PositionKey::ImageRow {
                image: picture.patches.hash,
                row: (position - picture.positions.start) as u32,
            },
        }));
    }

    /// Tokens of the completion so far.
    fn completion(&self) -> u32 {
        (self.tokens.len() - self.drafts - self.prompt_len) as u32
    }

    /// Whether it has its first token: a drafter can continue from it.
    pub(super) fn is_decoding(&self) -> bool {
        self.completion() > 0
    }

    /// The most draft tokens that its limits allow. One token comes without draft tokens.
    pub(super) fn max_draft_tokens(&self) -> usize {
        let left = (self.max_tokens - self.completion()).saturating_sub(1) as usize;
        if self.is_decoding() { left.min(self.max_draft) } else { 0 }
    }

    /// It becomes active; `cached` of its tokens need not run.
    pub(super) fn start(&mut self, cached: u32, now: Duration) {
        if self.started.is_none() {
            self.started = Some(now);
            self.usage.cached = cached.min(self.prompt_len as u32);
        }
        self.report_prefill(cached);
    }

    /// Emits the progress of the prompt when it has advanced.
    pub(super) fn report_prefill(&mut self, done: u32) {
        let total = self.prompt_len as u32;
        let done = done.min(total);
        if self.reported.is_none_or(|reported| reported < done) {
            self.reported = Some(done);
            self.send(Event::Prefill { done, total });
        }
    }

    /// Verifies draft tokens against a step's samples, one for each draft token and one more: keeps
    /// the samples up to the first that differs from its draft token, as far as the request goes.
    /// Sets `kept` and `finish`.
    pub(super) fn verify(&mut self, samples: impl Iterator<Item = Sampled>, now: Duration) {
        let first = self.tokens.len() - self.drafts;
        let before = self.completion();
        let mut accepting = true;
        for (i, sampled) in samples.enumerate() {
            if !accepting {
                continue;
            }
            let token = sampled.token;
            accepting = i < self.drafts && self.tokens[first + i] == token;
            self.sampled.push(sampled);
            if self.stop.contains(&token) {
                self.finish = Some(FinishReason::Stop(token));
            } else if before + self.sampled.len() as u32 == self.max_tokens {
                self.finish = Some(FinishReason::Length);
            }
            accepting &= self.finish.is_none();
        }
        let count = self.sampled.len();
        assert!(count > 0, "a token is sampled from every row of logits");
        self.kept = self.num_tokens - self.drafts + count - 1;
        self.verified = self.drafts;
        if self.drafts > 0 {
            let last_was_draft = count <= self.drafts
                && self.tokens[first + count - 1] == self.sampled[count - 1].token;
            let accepted = count - usize::from(!last_was_draft);
            let verify = Verify {
                completion: before,
                drafted: self.drafts as u32,
                accepted: accepted as u32,
            };
            self.usage.verifies.push(verify);
            self.accepted = accepted;
        }
        self.discard_draft();
        self.tokens.extend(self.sampled.iter().map(|sampled| sampled.token));
        self.first_token.get_or_insert(now);
        self.last_token = now;
    }

    /// Takes this step's tokens into penalties and grammar, and emits them.
    pub(super) fn emit(&mut self) {
        let counts = sampler::counts_history(&self.sampling);
        let mut tokens = std::mem::take(&mut self.sampled);
        for sampled in tokens.drain(..) {
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
            if !self.sink_open {
                break;
            }
            self.usage.completion += 1;
            self.send(Event::Token(sampled));
        }
        tokens.clear();
        self.sampled = tokens;
    }

    fn send(&mut self, event: Event) {
        if (self.sink)(event).is_break() {
            self.sink_open = false;
            self.finish = Some(FinishReason::Cancelled);
        }
    }

    /// Emits [`Event::Done`], the last event.
    pub(super) fn end(mut self, now: Duration) {
        let reason = self.finish.take().expect("a sequence ends with a finish reason");
        let started = self.started.unwrap_or(now);
        let first = self.first_token.unwrap_or(now);
        let timings = Timings {
            queued: started.saturating_sub(self.submitted),
            prefill: first.saturating_sub(started),
            decode: if self.first_token.is_some() {
                self.last_token.saturating_sub(first)
            } else {
                Duration::ZERO
            },
        };
        // Tokens that were not emitted do not count.
        self.usage.truncate(self.usage.completion);
        // A `Break` has nothing left to cancel.
        let _ = (self.sink)(Event::Done(Done { reason, usage: self.usage, timings }));
    }

    /// Ends it with an error; it runs no tokens in this step.
    pub(super) fn abort(&mut self, error: Error) {
        self.discard_draft();
        self.num_tokens = 0;
        self.finish = Some(FinishReason::Failed(error));
    }

    /// Appends draft tokens to be verified in this step, as far as its budget goes.
    pub(super) fn append_draft(&mut self, drafts: impl Iterator<Item = Token>) {
        let before = self.tokens.len();
        self.tokens.extend(drafts.take(self.draft_budget));
        self.drafts = self.tokens.len() - before;
    }

    /// Removes the draft tokens.
    pub(super) fn discard_draft(&mut self) {
        self.tokens.truncate(self.tokens.len() - self.drafts);
        self.drafts = 0;
    }

    /// Removes the draft tokens that the grammar does not allow. Where it allows none but forces
    /// tokens of its own, those are drafted.
    pub(super) fn constrain_draft(&mut self) -> Result<()> {
        let Some(constraint) = &mut self.constraint else { return Ok(()) };
        let first = self.tokens.len() - self.drafts;
        let legal = constraint.legal_prefix(&self.tokens[first..])?;
        self.tokens.truncate(first + legal.min(self.drafts));
        self.drafts = self.tokens.len() - first;
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

    /// Writes the masks of the tokens to be sampled in this step, one for each draft token and one
    /// more, as far as a grammar or the minimum length restricts them. A draft token behind which
    /// the grammar allows nothing is removed, with those behind it: only if the model samples it
    /// has the grammar failed.
    pub(super) fn fill_masks(
        &mut self,
        masks: &mut Vec<TokenMask>,
        used: &mut usize,
        vocab: usize,
    ) -> Result<()> {
        let first = self.tokens.len() - self.drafts;
        let min = self.min_tokens.saturating_sub(self.completion()) as usize;
        (self.first_mask, self.num_masks) = (*used, 0);
        let mut accepted = 0;
        for i in 0..=self.drafts {
            let banned: &[Token] = if i < min { &self.stop } else { &[] };
            if self.constraint.is_none() && banned.is_empty() {
                break;
            }
            if masks.len() == *used {
                masks.push(TokenMask::default());
            }
            let constraint = self.constraint.as_deref_mut();
            match write_mask(constraint, banned, vocab, first + i, &mut masks[*used]) {
                Ok(()) => *used += 1,
                Err(error) if i == 0 => return Err(error),
                Err(_) => {
                    let dropped = self.drafts - (i - 1);
                    self.tokens.truncate(self.tokens.len() - dropped);
                    self.drafts -= dropped;
                    self.num_tokens -= dropped;
                    break;
                }
            }
            self.num_masks += 1;
            if let Some(constraint) = self.constraint.as_mut().filter(|_| i < self.drafts) {
                constraint.accept(self.tokens[first + i])?;
                accepted += 1;
            }
        }
        match &mut self.constraint {
            Some(constraint) => constraint.rollback(accepted),
            None => Ok(()),
        }
    }
}

/// The tokens of a prompt, with a placeholder for each row of its pictures, and those pictures.
fn prompt_positions(prompt: Vec<Segment>, limits: &Limits) -> (Vec<Token>, Vec<Picture>) {
    let (mut tokens, mut pictures) = (Vec::new(), Vec::new());
    for segment in prompt {
        match segment {
            Segment::Tokens(part) if tokens.is_empty() => tokens = part,
            Segment::Tokens(part) => tokens.extend_from_slice(&part),
            Segment::Patches(patches) => {
                let merge = limits.merge.expect("pictures are refused without an encoder");
                let positions = tokens.len()..tokens.len() + patches.rows(merge);
                tokens.resize(positions.end, Token(0));
                pictures.push(Picture { patches, positions });
            }
        }
    }
    (tokens, pictures)
}

/// The picture that a position belongs to.
fn picture_at(pictures: &[Picture], position: usize) -> Option<&Picture> {
    let index = pictures.partition_point(|picture| picture.positions.end <= position);
    pictures.get(index).filter(|picture| picture.positions.contains(&position))
}

/// Writes the mask of the token at `position`: what the constraint allows, without the `banned`
/// tokens unless it allows only those.
fn write_mask(
    mut constraint: Option<&mut (dyn Constraint + 'static)>,
    banned: &[Token],
    vocab: usize,
    position: usize,
    mask: &mut TokenMask,
) -> Result<()> {
    let mut write = |mask: &mut TokenMask| match &mut constraint {
        Some(constraint) => constraint.mask(mask),
        None => {
            mask.words.clear();
            mask.words.resize(vocab.div_ceil(32), u32::MAX);
            Ok(())
        }
    };
    let is_empty = |mask: &TokenMask| mask.words.iter().all(|word| *word == 0);
    write(mask)?;
    if is_empty(mask) {
        return Err(Error::Invalid(format!(
            "the grammar allows no token at position {position}: it contradicts itself"
        )));
    }
    if !banned.is_empty() {
        for token in banned {
            if let Some(word) = mask.words.get_mut(token.0 as usize / 32) {
                *word &= !(1 << (token.0 % 32));
            }
        }
        if is_empty(mask) {
            write(mask)?;
        }
    }
    Ok(())
}

/// Nanoseconds of waiting time that a priority is worth. Every higher priority is worth more, none
/// more than [`MAX_PRIORITY_CREDIT`]: whoever waited longer than that goes before all newcomers.
fn priority_credit(priority: i32) -> i64 {
    let priority = f64::from(priority);
    let share = priority / (priority.abs() + HALF_PRIORITY);
    (MAX_PRIORITY_CREDIT.as_nanos() as f64 * share) as i64
}
