//! How likely a draft token is accepted, by its index in the draft block.

/// Chance assumed for an index that was never tried: high, so that it is tried.
pub(in crate::engine) const UNTRIED_CHANCE: f32 = 0.8;
/// Tries that the average of other requests counts for at one index.
const PRIOR_TRIES: f32 = 1.0;
/// Tries that it counts for over all indices together.
const PRIOR_TRIES_TOTAL: f32 = 4.0;
/// The highest chance taken from other indices for one that was never tried.
const MAX_PRIOR: f32 = 0.99;

/// Draft tokens accepted and tried at each index of a draft block; older ones count less.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Acceptance {
    /// `(accepted, tried)` by index.
    counts: Vec<(f32, f32)>,
    decay: f32,
}

impl Acceptance {
    /// Nothing tried yet. Each verify multiplies the weight of earlier ones by `decay`.
    pub(in crate::engine) fn new(width: usize, decay: f32) -> Self {
        Self { counts: vec![(0.0, 0.0); width], decay }
    }

    /// Takes in a verify of `verified` draft tokens that accepted the first `accepted`. Those
    /// behind the first rejected one were not tried.
    pub(in crate::engine) fn learn(&mut self, verified: usize, accepted: usize) {
        let tested = verified.min(accepted + 1).min(self.counts.len());
        for (i, (hits, tries)) in self.counts[..tested].iter_mut().enumerate() {
            *hits = *hits * self.decay + f32::from(u8::from(i < accepted));
            *tries = *tries * self.decay + 1.0;
        }
    }

    /// Chance that the draft token at `index` is accepted when those before it are. `prior` holds
    /// the counts of all requests, which a request starts from.
    pub(in crate::engine) fn chance(&self, index: usize, prior: Option<&Acceptance>) -> f32 {
        let expected = |index| prior.map_or(UNTRIED_CHANCE, |prior| prior.chance(index, None));
        let (hits, tries) = self.counts[index];
        // A request that is accepted more often than others where it was tried is expected to be so
        // further on: else one that begins with short drafts would never try long ones.
        let ratio = prior.map_or(1.0, |_| self.ratio_to(expected));
        let prior = (ratio * expected(index)).min(MAX_PRIOR);
        (hits + PRIOR_TRIES * prior) / (tries + PRIOR_TRIES)
    }

    /// Accepted draft tokens as a multiple of those that `expected`, the chance by index, predicts.
    fn ratio_to(&self, expected: impl Fn(usize) -> f32) -> f32 {
        let start = (PRIOR_TRIES_TOTAL, PRIOR_TRIES_TOTAL);
        let sums = self.counts.iter().enumerate().fold(start, |sums, (index, counts)| {
            let (hits, tries) = *counts;
            // Most indices were never tried: skip the work of asking for them.
            let expected = if tries > 0.0 { tries * expected(index) } else { 0.0 };
            (sums.0 + hits, sums.1 + expected)
        });
        sums.0 / sums.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chance_converges_to_the_accepted_share() {
        let mut acceptance = Acceptance::new(4, 0.99);
        assert_eq!(acceptance.chance(0, None), UNTRIED_CHANCE);
        for i in 0..400 {
            // Three of four first tokens are accepted, then a third of the second ones.
            acceptance.learn(3, [0, 1, 2, 1][i % 4].min(2));
        }
        assert!((acceptance.chance(0, None) - 0.75).abs() < 0.03);
        assert!((acceptance.chance(1, None) - 0.333).abs() < 0.03);
        assert_eq!(acceptance.chance(3, None), UNTRIED_CHANCE, "never tried");
    }

    #[test]
    fn a_new_request_starts_at_the_average_of_others() {
        let (mut average, mut own) = (Acceptance::new(2, 0.99), Acceptance::new(2, 0.9));
        (0..200).for_each(|_| average.learn(2, 0));
        assert!(own.chance(0, Some(&average)) < 0.02);
        (0..20).for_each(|_| own.learn(2, 2));
        assert!(own.chance(0, Some(&average)) > 0.75);
    }

    #[test]
    fn better_acceptance_at_tried_indices_raises_the_chance_of_untried_ones() {
        let (mut average, mut own) = (Acceptance::new(15, 0.98), Acceptance::new(15, 0.95));
        (0..200).for_each(|i| average.learn(15, [2, 4, 6, 1][i % 4]));
        let before = own.chance(10, Some(&average));
        (0..4).for_each(|_| own.learn(7, 7));
        assert!(own.chance(10, Some(&average)) > before + 0.1);
        (0..20).for_each(|_| own.learn(7, 0));
        assert!(own.chance(10, Some(&average)) < before, "worse acceptance lowers it");
    }
}
