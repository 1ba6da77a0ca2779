//! What a request has taught about drafting for it: how often its draft tokens are accepted,
//! whether drafting pays for it, and below which confidence a draft token is not worth verifying.

mod acceptance;
mod controller;
mod threshold;

pub(super) use acceptance::{Acceptance, UNTRIED_CHANCE};
pub(super) use controller::{DraftController, TRIAL_MARGIN};
use threshold::ConfidenceThreshold;

/// How much an earlier verify of a request counts beside the next one.
const DECAY: f32 = 0.95;

/// Drafting statistics of one request.
pub(super) struct DraftStats {
    pub(super) acceptance: Acceptance,
    pub(super) controller: DraftController,
    pub(super) threshold: ConfidenceThreshold,
    /// Confidences of the draft tokens of the last block, before the threshold cut it.
    pub(super) confidences: Vec<f32>,
    /// While a step is planned: the draft length that is weighed and the tokens that one more
    /// draft token is expected to add.
    pub(super) candidate: (usize, f64),
    /// While a step is planned: the best draft length found so far.
    pub(super) best: usize,
}

impl DraftStats {
    /// No statistics yet, for draft blocks of up to `width` tokens.
    pub(super) fn new(width: usize) -> Self {
        Self {
            acceptance: Acceptance::new(width, DECAY),
            controller: DraftController::new(),
            threshold: ConfidenceThreshold::default(),
            confidences: Vec::with_capacity(width),
            candidate: (0, 0.0),
            best: 0,
        }
    }

    /// Takes in the confidences of a draft block. Returns how many leading draft tokens are worth
    /// verifying.
    pub(super) fn cut(&mut self, confidences: impl Iterator<Item = f32>) -> usize {
        let threshold = self.threshold.choose();
        self.confidences.clear();
        self.confidences.extend(confidences);
        self.confidences.iter().take_while(|c| **c >= threshold).count()
    }
}
