//! How many draft tokens each sequence gets in a step: the numbers that are expected to give most
//! tokens per second, by the measured time of steps and by what was accepted so far; none where
//! drafting was measured not to pay.

mod cost;

use std::time::Duration;

use super::draft_stats::{Acceptance, DraftStats, TRIAL_MARGIN, UNTRIED_CHANCE};
use super::sequence::Sequence;
use cost::StepCost;

/// How much an earlier verify of any request counts beside the next one.
const DECAY: f32 = 0.98;
/// How many times the expected rate another draft length must promise to be preferred.
const MIN_GAIN: f64 = 1.0 + 1e-6;
/// A step that took longer than so many times the expected time counts as this many.
const MAX_SLOWDOWN: f64 = 1.5;
/// Prompt tokens that a step may run however long it takes.
const MIN_PREFILL_TOKENS: usize = 16;

/// What an engine knows about the cost and the success of drafting.
pub(super) struct Speculation {
    cost: StepCost,
    /// Acceptance over all requests.
    average_acceptance: Acceptance,
}

/// The part of a step that does not depend on the draft lengths to be chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepBase {
    /// Tokens of the step.
    pub(super) tokens: usize,
    /// Sequences that sample a token in it.
    pub(super) sampling: usize,
    /// Sequences that get draft blocks in it.
    pub(super) draft_blocks: usize,
}

impl Speculation {
    pub(super) fn new(width: usize) -> Self {
        Self { cost: StepCost::new(), average_acceptance: Acceptance::new(width, DECAY) }
    }

    /// Expected time of a step in which `count` sequences decode a token each.
    pub(super) fn decode_time(&self, count: usize) -> Duration {
        Duration::from_secs_f64(self.cost.expect(count, 0))
    }

    /// Expected seconds that each token of a prompt takes in passes of `tokens` tokens.
    pub(super) fn prefill_token_time(&self, tokens: usize) -> f64 {
        self.cost.bound(tokens) / tokens as f64
    }

    /// The most tokens, up to `max`, that can be added to a step of `base` tokens so that its pass
    /// takes at most `time`, however little of that was measured yet.
    pub(super) fn tokens_within(&self, base: usize, max: usize, time: Duration) -> usize {
        let fits = |tokens: &usize| self.cost.bound(base + tokens) <= time.as_secs_f64();
        let smaller = |tokens: &usize| {
            (*tokens > MIN_PREFILL_TOKENS).then(|| (tokens * 7 / 8).max(MIN_PREFILL_TOKENS))
        };
        let mut candidates = std::iter::successors(Some(max), smaller);
        candidates.find(fits).unwrap_or(max.min(MIN_PREFILL_TOKENS))
    }

    /// Chance that the draft token at `index` is accepted when those before it are.
    fn chance(&self, stats: &DraftStats, index: usize) -> f64 {
        f64::from(stats.acceptance.chance(index, Some(&self.average_acceptance)))
    }

    /// Lowers `draft_budget` of the adaptive sequences to what pays, to at most `budget` in all.
    pub(super) fn share_out(&self, seqs: &mut [Sequence], base: StepBase, budget: usize) {
        for seq in seqs.iter_mut().filter(|seq| seq.adaptive && seq.draft_budget > 0) {
            if !seq.draft_stats.controller.allows() {
                seq.draft_budget = 0;
            }
            seq.draft_stats.candidate = (0, self.chance(&seq.draft_stats, 0));
            seq.draft_stats.best = 0;
        }
        if self.cost.is_known() && base.tokens == base.sampling && !self.cost.knows(base.tokens) {
            // The time of a step without draft tokens has to be measured now and then.
            seqs.iter_mut().filter(|seq| seq.adaptive).for_each(|seq| seq.draft_budget = 0);
            return;
        }
        self.find_best(seqs, base, budget);
        let adaptive = seqs.iter().filter(|seq| seq.adaptive);
        let given: usize = adaptive.map(|seq| seq.draft_stats.best.min(seq.draft_budget)).sum();
        let mut left = budget - given;
        for seq in seqs.iter_mut().filter(|seq| seq.adaptive && seq.draft_budget > 0) {
            let was_in_trial = seq.draft_stats.controller.in_trial();
            if seq.draft_stats.best == 0 && seq.draft_stats.controller.may_try() {
                // The trial after a pause carries a draft token in any case: the cost of drafting
                // may have been measured in a disturbed step.
                let min = usize::from(was_in_trial).min(left);
                seq.draft_stats.best = self.trial_length(seq, base, left).max(min);
                left -= seq.draft_stats.best;
            }
            if seq.draft_stats.best == 0 && seq.draft_stats.candidate.0 > 0 {
                seq.draft_stats.controller.pause();
            }
            seq.draft_budget = seq.draft_budget.min(seq.draft_stats.best);
        }
    }

    /// Gives out draft tokens one by one, each to the sequence that is expected to gain most by it,
    /// and records in `best` the lengths with the highest expected rate on the way.
    fn find_best(&self, seqs: &mut [Sequence], base: StepBase, budget: usize) {
        let StepBase { mut tokens, mut draft_blocks, sampling } = base;
        let mut gained = sampling as f64;
        let mut best = gained / self.cost.expect(tokens, draft_blocks);
        let open = |seq: &Sequence| seq.adaptive && seq.draft_stats.candidate.0 < seq.draft_budget;
        for _ in 0..budget {
            let next = seqs.iter_mut().filter(|seq| open(seq));
            let by_gain = |seq: &&mut Sequence| seq.draft_stats.candidate.1;
            let Some(seq) = next.max_by(|a, b| by_gain(a).total_cmp(&by_gain(b))) else { break };
            let (length, gain) = seq.draft_stats.candidate;
            gained += gain;
            tokens += 1;
            draft_blocks += usize::from(length == 0);
            let further = if length + 1 < seq.draft_budget {
                self.chance(&seq.draft_stats, length + 1)
            } else {
                0.0
            };
            seq.draft_stats.candidate = (length + 1, gain * further);
            let rate = gained / self.cost.expect(tokens, draft_blocks);
            if !self.cost.is_known() || rate > best * MIN_GAIN {
                best = rate;
                for seq in seqs.iter_mut().filter(|seq| seq.adaptive) {
                    seq.draft_stats.best = seq.draft_stats.candidate.0;
                }
            }
        }
    }

    /// The smallest length up to `max` with which a drafter of [`UNTRIED_CHANCE`] would win its
    /// trial, whatever was accepted so far; 0 where even that one would not.
    fn trial_length(&self, seq: &Sequence, base: StepBase, max: usize) -> usize {
        let (mut gain, mut gained) = (1.0, base.sampling as f64);
        let needed = TRIAL_MARGIN * gained / self.cost.expect(base.tokens, base.draft_blocks);
        let wins = |length: &usize| {
            gain *= f64::from(UNTRIED_CHANCE);
            gained += gain;
            gained / self.cost.expect(base.tokens + length, base.draft_blocks + 1) > needed
        };
        (1..=seq.draft_budget.min(max)).find(wins).unwrap_or(0)
    }

    /// Takes in what a step accepted and the times of its drafting and of its pass.
    pub(super) fn learn(&mut self, seqs: &mut [Sequence], draft: Duration, pass: Duration) {
        for seq in seqs.iter_mut().filter(|seq| seq.verified > 0) {
            self.average_acceptance.learn(seq.verified, seq.accepted);
            seq.draft_stats.acceptance.learn(seq.verified, seq.accepted);
        }
        let tokens: usize = seqs.iter().map(|seq| seq.num_tokens).sum();
        let draft_blocks = seqs.iter().filter(|seq| seq.draft_budget > 0).count();
        self.cost.measure(tokens, pass, draft_blocks, draft);
        // Steps with prompt tokens tell little about those without.
        if pass.is_zero() || seqs.iter().any(|seq| seq.num_tokens > 1 + seq.verified) {
            return;
        }
        let count = seqs.len();
        let measured = (pass + draft).as_secs_f64();
        // A sequence is measured as if no other had draft tokens. A step that took far longer than
        // expected was disturbed by something else.
        let slowdown = (measured / self.cost.expect(tokens, draft_blocks)).min(MAX_SLOWDOWN);
        for seq in seqs.iter_mut().filter(|seq| seq.adaptive && seq.num_tokens > 0) {
            let (budget, verified, accepted) = (seq.draft_budget, seq.verified, seq.accepted);
            let stats = &mut seq.draft_stats;
            let plain = self.cost.expect(count, 0);
            if budget == 0 {
                stats.controller.learn_plain(count as f64, slowdown * plain);
                continue;
            }
            let own = slowdown * self.cost.expect(count + verified, 1);
            let tokens = (count + accepted) as f64;
            stats.controller.learn_drafted(tokens, own, count as f64 / plain);
            let cost = |drafts| self.cost.expect(count + drafts, 1);
            stats.threshold.learn(&stats.confidences, accepted, count as f64, cost);
        }
    }
}
