//! Below which confidence a draft is not worth its row.

/// The floors to choose from.
const FLOORS: [f32; 4] = [0.0, 0.15, 0.35, 0.6];
/// Verifies that carry every draft before a threshold is chosen, and then one of how many.
const WHOLE: (u32, u32) = (4, 8);
/// What earlier verifies count for.
const MEMORY: f64 = 0.9;

/// Chooses the threshold of one request. Verifies that carry every draft show what each threshold would
/// have given and cost.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct ConfidenceThreshold {
    /// Tokens and seconds under each threshold.
    sums: [(f64, f64); FLOORS.len()],
    verifies: u32,
}

impl ConfidenceThreshold {
    /// The threshold of the coming verify.
    pub(super) fn choose(&self) -> f32 {
        if self.verifies < WHOLE.0 || self.verifies.is_multiple_of(WHOLE.1) {
            return FLOORS[0];
        }
        let mut best = 0;
        for (i, (tokens, seconds)) in self.sums.iter().enumerate() {
            if tokens * self.sums[best].1 > self.sums[best].0 * seconds {
                best = i;
            }
        }
        FLOORS[best]
    }

    /// A verify of the drafts with these confidences, cut by [`ConfidenceThreshold::choose`], kept the first
    /// `kept`. `plain` tokens come without drafts; `seconds` is what a step costs by drafts.
    pub(super) fn learn(
        &mut self,
        confidences: &[f32],
        kept: usize,
        plain: f64,
        seconds: impl Fn(usize) -> f64,
    ) {
        let whole = self.choose() == FLOORS[0];
        self.verifies = self.verifies.wrapping_add(1);
        if !whole {
            return;
        }
        for (threshold, (tokens, time)) in FLOORS.iter().zip(&mut self.sums) {
            let carried = confidences.iter().take_while(|c| *c >= threshold).count();
            *tokens = *tokens * MEMORY + plain + kept.min(carried) as f64;
            *time = *time * MEMORY + seconds(carried);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(confidences: &[f32], kept: usize, seconds: fn(usize) -> f64) -> f32 {
        let mut threshold = ConfidenceThreshold::default();
        (0..9).for_each(|_| threshold.learn(confidences, kept, 1.0, seconds));
        threshold.choose()
    }

    #[test]
    fn dear_rows_raise_the_floor() {
        let confidences = [0.9, 0.8, 0.5, 0.3, 0.1];
        assert_eq!(chosen(&confidences, 2, |n| 1.0 + n as f64 / 4.0), 0.6);
        assert_eq!(chosen(&confidences, 4, |n| 1.0 + n as f64 / 4.0), 0.15);
        // Where rows are free the lowest of equals is kept.
        assert_eq!(chosen(&confidences, 2, |_| 1.0), 0.0);
    }

    #[test]
    fn every_guess_is_carried_now_and_then() {
        let mut threshold = ConfidenceThreshold::default();
        let mut whole = 0;
        for _ in 0..80 {
            whole += usize::from(threshold.choose() == 0.0);
            threshold.learn(&[0.9, 0.1], 1, 1.0, |n| 1.0 + n as f64);
        }
        assert_eq!(whole, 13);
    }
}
