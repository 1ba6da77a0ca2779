//! Below which confidence of the drafter a draft token is not worth verifying.

/// The thresholds to choose from; the first cuts nothing.
const THRESHOLDS: [f32; 4] = [0.0, 0.15, 0.35, 0.6];
/// Verifies of uncut draft blocks before a threshold is chosen.
const UNCUT_FIRST: u32 = 4;
/// After that every so many verifies is of an uncut block, to keep measuring.
const UNCUT_EVERY: u32 = 8;
/// How much an earlier verify counts beside the next one.
const DECAY: f64 = 0.9;

/// Chooses the confidence threshold of one request. A verify of an uncut draft block shows what
/// each threshold would have given and cost.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct ConfidenceThreshold {
    /// Tokens and seconds under each threshold.
    sums: [(f64, f64); THRESHOLDS.len()],
    verifies: u32,
}

impl ConfidenceThreshold {
    /// The threshold of the coming verify.
    pub(in crate::engine) fn choose(&self) -> f32 {
        if self.verifies < UNCUT_FIRST || self.verifies.is_multiple_of(UNCUT_EVERY) {
            return THRESHOLDS[0];
        }
        let mut best = 0;
        for (i, (tokens, seconds)) in self.sums.iter().enumerate() {
            if tokens * self.sums[best].1 > self.sums[best].0 * seconds {
                best = i;
            }
        }
        THRESHOLDS[best]
    }

    /// Takes in a verify of draft tokens with these confidences, cut by
    /// [`ConfidenceThreshold::choose`], that accepted the first `accepted`. `plain` tokens come
    /// without draft tokens; `seconds` is the time of a step by the number of draft tokens.
    pub(in crate::engine) fn learn(
        &mut self,
        confidences: &[f32],
        accepted: usize,
        plain: f64,
        seconds: impl Fn(usize) -> f64,
    ) {
        let uncut = self.choose() == THRESHOLDS[0];
        self.verifies = self.verifies.wrapping_add(1);
        if !uncut {
            return;
        }
        for (threshold, (tokens, time)) in THRESHOLDS.iter().zip(&mut self.sums) {
            let carried = confidences.iter().take_while(|c| *c >= threshold).count();
            *tokens = *tokens * DECAY + plain + accepted.min(carried) as f64;
            *time = *time * DECAY + seconds(carried);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(confidences: &[f32], accepted: usize, seconds: fn(usize) -> f64) -> f32 {
        let mut threshold = ConfidenceThreshold::default();
        (0..9).for_each(|_| threshold.learn(confidences, accepted, 1.0, seconds));
        threshold.choose()
    }

    #[test]
    fn expensive_verification_raises_the_threshold() {
        let confidences = [0.9, 0.8, 0.5, 0.3, 0.1];
        assert_eq!(chosen(&confidences, 2, |n| 1.0 + n as f64 / 4.0), 0.6);
        assert_eq!(chosen(&confidences, 4, |n| 1.0 + n as f64 / 4.0), 0.15);
        // Where verification is free all thresholds give the same: the lowest is chosen.
        assert_eq!(chosen(&confidences, 2, |_| 1.0), 0.0);
    }

    #[test]
    fn uncut_blocks_are_verified_at_first_and_every_eighth_time() {
        let mut threshold = ConfidenceThreshold::default();
        let mut uncut = 0;
        for _ in 0..80 {
            uncut += usize::from(threshold.choose() == 0.0);
            threshold.learn(&[0.9, 0.1], 1, 1.0, |n| 1.0 + n as f64);
        }
        assert_eq!(uncut, 13);
    }
}
