//! How likely a draft is right, by its place in the block.

/// Chance of a draft nobody has tried: hopeful, so that it is tried.
pub(super) const HOPE: f32 = 0.8;
/// Trials that what is usual counts for, at a place and for all slices together.
const WEIGHT: f32 = 1.0;
const COMMON: f32 = 4.0;
/// The most that is expected of a place nobody has tried.
const MOST: f32 = 0.99;

/// Draft tokens kept and tried at each place of a block, the older the less they count.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Acceptance {
    slices: Vec<(f32, f32)>,
    memory: f32,
}

impl Acceptance {
    /// Nothing tried yet. Each verify makes the earlier ones count `memory` times as much.
    pub(super) fn new(width: usize, memory: f32) -> Self {
        Self { slices: vec![(0.0, 0.0); width], memory }
    }

    /// A verify of `drafts` drafts kept the first `kept`.
    pub(super) fn learn(&mut self, drafts: usize, kept: usize) {
        let tried = drafts.min(kept + 1).min(self.slices.len());
        for (i, (right, tries)) in self.slices[..tried].iter_mut().enumerate() {
            *right = *right * self.memory + f32::from(u8::from(i < kept));
            *tries = *tries * self.memory + 1.0;
        }
    }

    /// Chance that the draft at `place` is right when those before it are, `usual` being that of
    /// other requests.
    pub(super) fn chance(&self, slice: usize, usual: Option<&Acceptance>) -> f32 {
        let expected = |slice| usual.map_or(HOPE, |usual| usual.chance(slice, None));
        let (right, tries) = self.slices[slice];
        // A request that does better than others where it was tried will do so further on: else one
        // that begins with short drafts would never find out that long ones pay.
        let lift = usual.map_or(1.0, |_| self.lift(expected));
        (right + WEIGHT * (lift * expected(slice)).min(MOST)) / (tries + WEIGHT)
    }

    /// How many times as many drafts were right as `expected`.
    fn lift(&self, expected: impl Fn(usize) -> f32) -> f32 {
        let sums = self.slices.iter().enumerate().fold((COMMON, COMMON), |sums, (slice, own)| {
            let (right, tries) = *own;
            // Places nobody reached are the most of them.
            let usual = if tries > 0.0 { tries * expected(slice) } else { 0.0 };
            (sums.0 + right, sums.1 + usual)
        });
        sums.0 / sums.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_to_the_share_that_was_kept() {
        let mut acceptance = Acceptance::new(4, 0.99);
        assert_eq!(acceptance.chance(0, None), HOPE);
        for i in 0..400 {
            // Three of four first drafts right, then half of the second; no third.
            acceptance.learn(3, [0, 1, 2, 1][i % 4].min(2));
        }
        assert!((acceptance.chance(0, None) - 0.75).abs() < 0.03);
        assert!((acceptance.chance(1, None) - 0.333).abs() < 0.03);
        assert_eq!(acceptance.chance(3, None), HOPE, "never tried");
    }

    #[test]
    fn a_new_request_starts_at_what_is_usual() {
        let (mut usual, mut own) = (Acceptance::new(2, 0.99), Acceptance::new(2, 0.9));
        (0..200).for_each(|_| usual.learn(2, 0));
        assert!(own.chance(0, Some(&usual)) < 0.02);
        (0..20).for_each(|_| own.learn(2, 2));
        assert!(own.chance(0, Some(&usual)) > 0.75);
    }

    #[test]
    fn what_a_request_does_better_it_is_expected_to_do_further_on() {
        let (mut usual, mut own) = (Acceptance::new(15, 0.98), Acceptance::new(15, 0.95));
        (0..200).for_each(|i| usual.learn(15, [2, 4, 6, 1][i % 4]));
        let before = own.chance(10, Some(&usual));
        (0..4).for_each(|_| own.learn(7, 7));
        assert!(own.chance(10, Some(&usual)) > before + 0.1);
        (0..20).for_each(|_| own.learn(7, 0));
        assert!(own.chance(10, Some(&usual)) < before, "and what it does worse");
    }
}
