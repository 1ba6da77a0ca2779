//! How many drafts each sequence gets: the lengths that are expected to give most tokens a second,
//! by measured time of steps and by what was kept so far; none where drafting was seen not to pay.

mod acceptance;
mod controller;
mod cost;
mod threshold;

use std::time::Duration;

use super::seq::Sequence;
use acceptance::{Acceptance, HOPE};
use controller::{DraftController, MARGIN};
use cost::StepCost;
use threshold::ConfidenceThreshold;

/// What earlier verifies count for, of one request and of all.
const MEMORY: (f32, f32) = (0.95, 0.98);
/// More drafts must promise this much more.
const WORTH: f64 = 1.0 + 1e-6;

/// How many times the usual time of a step counts at most.
const DISTURBED: f64 = 1.5;
/// Rows that a prompt may run in a step, however long it takes.
const MIN_PREFILL_TOKENS: usize = 16;

/// What an engine knows about drafting.
pub(super) struct Speculation {
    cost: StepCost,
    usual: Acceptance,
}

/// What a request taught about drafting.
pub(super) struct DraftStats {
    acceptance: Acceptance,
    controller: DraftController,
    threshold: ConfidenceThreshold,
    /// Of the drafts on offer, before the threshold cut them.
    confidences: Vec<f32>,
    /// Length being tried, its gain by one draft more, and the best length.
    trial: (usize, f64),
    best: usize,
}

impl DraftStats {
    pub(super) fn new(width: usize) -> Self {
        Self {
            acceptance: Acceptance::new(width, MEMORY.0),
            controller: DraftController::new(),
            threshold: ConfidenceThreshold::default(),
            confidences: Vec::with_capacity(width),
            trial: (0, 0.0),
            best: 0,
        }
    }

    /// Takes the drafts on offer in. Returns how many are confident enough.
    pub(super) fn offer(&mut self, confidences: impl Iterator<Item = f32>) -> usize {
        let threshold = self.threshold.choose();
        self.confidences.clear();
        self.confidences.extend(confidences);
        self.confidences.iter().take_while(|c| **c >= threshold).count()
    }
}

/// Rows of a step that come in any case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base {
    /// All of them.
    pub(super) rows: usize,
    /// Those that choose a token.
    pub(super) choosing: usize,
    /// Blocks that are drafted in any case.
    pub(super) blocks: usize,
}

impl Speculation {
    pub(super) fn new(width: usize) -> Self {
        Self { cost: StepCost::new(), usual: Acceptance::new(width, MEMORY.1) }
    }

    /// Rows up to `most` that can be added to `base` in a pass of `time`.
    pub(super) fn rows_within(&self, base: usize, most: usize, time: Duration) -> usize {
        let fits = |rows: &usize| self.cost.expect(base + rows, 0) <= time.as_secs_f64();
        let smaller = |rows: &usize| {
            (*rows > MIN_PREFILL_TOKENS).then(|| (rows * 7 / 8).max(MIN_PREFILL_TOKENS))
        };
        let mut rows = std::iter::successors(Some(most), smaller);
        rows.find(fits).unwrap_or(most.min(MIN_PREFILL_TOKENS))
    }

    /// Chances multiply: the draft at `place` counts only when those before it are right.
    fn chance(&self, draft_stats: &DraftStats, slice: usize) -> f64 {
        f64::from(draft_stats.acceptance.chance(slice, Some(&self.usual)))
    }

    /// Lowers `room` of the adaptive sequences to what pays, `budget` in all.
    pub(super) fn share_out(&self, seqs: &mut [Sequence], base: Base, budget: usize) {
        for seq in seqs.iter_mut().filter(|seq| seq.adapts && seq.draft_budget > 0) {
            if !seq.draft_stats.controller.allows() {
                seq.draft_budget = 0;
            }
            seq.draft_stats.trial = (0, self.chance(&seq.draft_stats, 0));
            seq.draft_stats.best = 0;
        }
        if self.cost.is_known() && base.rows == base.choosing && !self.cost.knows(base.rows) {
            // What a step costs without drafts has to be seen now and then.
            seqs.iter_mut().filter(|seq| seq.adapts).for_each(|seq| seq.draft_budget = 0);
            return;
        }
        self.climb(seqs, base, budget);
        let adaptive = seqs.iter().filter(|seq| seq.adapts);
        let given: usize = adaptive.map(|seq| seq.draft_stats.best.min(seq.draft_budget)).sum();
        let mut left = budget - given;
        for seq in seqs.iter_mut().filter(|seq| seq.adapts && seq.draft_budget > 0) {
            let again = seq.draft_stats.controller.tries();
            if seq.draft_stats.best == 0 && seq.draft_stats.controller.may_try() {
                // After a pause one draft goes in any case: its cost may have been mismeasured.
                let least = usize::from(again).min(left);
                seq.draft_stats.best = self.hopeful(seq, base, left).max(least);
                left -= seq.draft_stats.best;
            }
            if seq.draft_stats.best == 0 && seq.draft_stats.trial.0 > 0 {
                seq.draft_stats.controller.park();
            }
            seq.draft_budget = seq.draft_budget.min(seq.draft_stats.best);
        }
    }

    /// One draft after the other to whom it helps most; what gave the best rate is kept.
    fn climb(&self, seqs: &mut [Sequence], base: Base, budget: usize) {
        let Base { mut rows, mut blocks, choosing } = base;
        let mut tokens = choosing as f64;
        let mut best = tokens / self.cost.expect(rows, blocks);
        let open = |seq: &Sequence| seq.adapts && seq.draft_stats.trial.0 < seq.draft_budget;
        for _ in 0..budget {
            let next = seqs.iter_mut().filter(|seq| open(seq));
            let next = next.max_by(|a, b| a.draft_stats.trial.1.total_cmp(&b.draft_stats.trial.1));
            let Some(seq) = next else { break };
            let (length, gain) = seq.draft_stats.trial;
            tokens += gain;
            rows += 1;
            blocks += usize::from(length == 0);
            let further = if length + 1 < seq.draft_budget {
                self.chance(&seq.draft_stats, length + 1)
            } else {
                0.0
            };
            seq.draft_stats.trial = (length + 1, gain * further);
            let rate = tokens / self.cost.expect(rows, blocks);
            if !self.cost.is_known() || rate > best * WORTH {
                best = rate;
                for seq in seqs.iter_mut().filter(|seq| seq.adapts) {
                    seq.draft_stats.best = seq.draft_stats.trial.0;
                }
            }
        }
    }

    /// The least length up to `most` with which a good drafter would win its trial, whatever was
    /// usual so far; none where not even that one would.
    fn hopeful(&self, seq: &Sequence, base: Base, most: usize) -> usize {
        let (mut gain, mut tokens) = (1.0, base.choosing as f64);
        let needed = MARGIN * tokens / self.cost.expect(base.rows, base.blocks);
        let wins = |length: &usize| {
            gain *= f64::from(HOPE);
            tokens += gain;
            tokens / self.cost.expect(base.rows + length, base.blocks + 1) > needed
        };
        (1..=seq.draft_budget.min(most)).find(wins).unwrap_or(0)
    }

    /// Takes in what a step kept and how long it took to draft and to run.
    pub(super) fn learn(&mut self, seqs: &mut [Sequence], draft: Duration, pass: Duration) {
        for seq in seqs.iter_mut().filter(|seq| seq.verified > 0) {
            self.usual.learn(seq.verified, seq.accepted);
            seq.draft_stats.acceptance.learn(seq.verified, seq.accepted);
        }
        let rows: usize = seqs.iter().map(|seq| seq.num_tokens).sum();
        let blocks = seqs.iter().filter(|seq| seq.draft_budget > 0).count();
        self.cost.measure(rows, pass, blocks, draft);
        // Steps with prompt rows say little about the others.
        if pass.is_zero() || seqs.iter().any(|seq| seq.num_tokens > 1 + seq.verified) {
            return;
        }
        let count = seqs.len();
        let measured = (pass + draft).as_secs_f64();
        // As if nobody else had drafted: others' drafts are neither its merit nor its fault.
        // A step that took far longer than others was disturbed: that says nothing of drafting.
        let scale = (measured / self.cost.expect(rows, blocks)).min(DISTURBED);
        for seq in seqs.iter_mut().filter(|seq| seq.adapts && seq.num_tokens > 0) {
            let (room, verified, accepted) = (seq.draft_budget, seq.verified, seq.accepted);
            let draft_stats = &mut seq.draft_stats;
            let plain = self.cost.expect(count, 0);
            if room == 0 {
                draft_stats.controller.saw_plain(count as f64, scale * plain);
                continue;
            }
            let own = scale * self.cost.expect(count + verified, 1);
            draft_stats.controller.saw_drafted(
                (count + accepted) as f64,
                own,
                count as f64 / plain,
            );
            let cost = |drafts| self.cost.expect(count + drafts, 1);
            draft_stats.threshold.learn(&draft_stats.confidences, accepted, count as f64, cost);
        }
    }
}
