//! What a step costs: measured times of passes by their tokens, and of drafting by draft blocks.

use std::time::Duration;

/// Token counts up to this have a point each; above it a point covers a quarter of a doubling.
const MAX_EXACT_COUNT: usize = 16;
const POINTS: usize = MAX_EXACT_COUNT + 4 * 16;
/// Of the first samples of a point the quickest counts; the very first is warm-up.
const WARM_UP_SAMPLES: u32 = 4;
/// Weights of a later sample. A quicker one shows what a step costs, a slower one mostly that other
/// processes used the machine; yet its load and the context length do change.
const FASTER_WEIGHT: f64 = 0.25;
const SLOWER_WEIGHT: f64 = 0.0625;
/// A point counts as known while it was measured within so many samples of the curve.
const MAX_AGE_SAMPLES: u64 = 256;

/// Measured cost of a step. Times are in seconds.
#[derive(Clone, Debug)]
pub(in crate::engine) struct StepCost {
    passes: Curve,
    drafts: Curve,
}

impl StepCost {
    pub(super) fn new() -> Self {
        Self { passes: Curve::new(), drafts: Curve::new() }
    }

    /// Takes in a step: the tokens and the time of its pass, the draft blocks and the time of
    /// drafting. A time of zero, from a clock that stands still, is not a measurement.
    pub(super) fn measure(
        &mut self,
        tokens: usize,
        pass: Duration,
        draft_blocks: usize,
        draft: Duration,
    ) {
        self.passes.measure(tokens, pass);
        self.drafts.measure(draft_blocks, draft);
    }

    /// Whether any pass was measured.
    pub(super) fn is_known(&self) -> bool {
        self.passes.samples > 0
    }

    /// Whether a pass of at most `tokens` tokens was measured lately.
    pub(super) fn knows(&self, tokens: usize) -> bool {
        let points = &self.passes.points[..=point(tokens)];
        points.iter().any(|p| p.samples > 1 && self.passes.samples - p.measured < MAX_AGE_SAMPLES)
    }

    /// Time that a pass of `tokens` tokens takes at most, as far as is known: beyond the largest
    /// measured pass the time grows in proportion to the tokens, or as steeply as between the last
    /// two points where that is steeper.
    pub(super) fn bound(&self, tokens: usize) -> f64 {
        self.passes.bound(tokens)
    }

    /// Expected time of a step. Beyond the largest measured pass it is flat: a larger step is assumed
    /// to be cheap until it is measured, so that more draft tokens are tried.
    pub(super) fn expect(&self, tokens: usize, draft_blocks: usize) -> f64 {
        let draft = if draft_blocks == 0 { 0.0 } else { self.drafts.at(draft_blocks) };
        self.passes.at(tokens) + draft
    }
}

/// Time by count, measured at points and linear between them. Beyond the last point it is flat for
/// [`Curve::at`] and grows for [`Curve::bound`].
#[derive(Clone, Debug)]
struct Curve {
    points: [Point; POINTS],
    samples: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Point {
    count: f64,
    time: f64,
    samples: u32,
    /// Samples of the curve when this point was measured last.
    measured: u64,
}

/// Index of the point that covers a count.
fn point(count: usize) -> usize {
    if count <= MAX_EXACT_COUNT {
        return count.saturating_sub(1);
    }
    let quarters = (4.0 * (count as f64 / MAX_EXACT_COUNT as f64).log2()).ceil() as usize;
    (MAX_EXACT_COUNT - 1 + quarters).min(POINTS - 1)
}

impl Curve {
    fn new() -> Self {
        Self { points: [Point::default(); POINTS], samples: 0 }
    }

    fn measure(&mut self, count: usize, time: Duration) {
        if count == 0 || time.is_zero() {
            return;
        }
        self.samples += 1;
        let point = &mut self.points[point(count)];
        let mut time = time.as_secs_f64();
        if point.samples > 1 {
            time = time.min(2.0 * point.time);
        }
        let faster = time < point.time;
        let weight = match point.samples {
            ..2 => 1.0,
            2..=WARM_UP_SAMPLES => f64::from(u8::from(faster)),
            _ if faster => FASTER_WEIGHT,
            _ => SLOWER_WEIGHT,
        };
        point.count += weight * (count as f64 - point.count);
        point.time += weight * (time - point.time);
        point.samples = point.samples.saturating_add(1);
        point.measured = self.samples;
    }

    /// As [`Curve::at`], but growing beyond the last point.
    fn bound(&self, count: usize) -> f64 {
        let mut known = self.points.iter().rev().filter(|point| point.samples > 0);
        let Some(last) = known.next().filter(|last| last.count < count as f64) else {
            return self.at(count);
        };
        let slope = known.next().map_or(0.0, |p| (last.time - p.time) / (last.count - p.count));
        last.time + (count as f64 - last.count) * slope.max(last.time / last.count)
    }

    fn at(&self, count: usize) -> f64 {
        let at = point(count);
        let known = |point: &&Point| point.samples > 0;
        let below = self.points[..=at].iter().rev().find(known);
        let above = self.points[at..].iter().find(known);
        // A larger step is never quicker: a point that was quicker bounds all smaller ones, whose
        // measurements were disturbed.
        let times = self.points[at..].iter().filter(known).map(|point| point.time);
        let bound = times.fold(f64::INFINITY, f64::min);
        let time = match (below, above) {
            (Some(a), Some(b)) if b.count > a.count => {
                let share = ((count as f64 - a.count) / (b.count - a.count)).clamp(0.0, 1.0);
                a.time + share * (b.time - a.time)
            }
            (Some(point), _) | (None, Some(point)) => point.time,
            (None, None) => 0.0,
        };
        time.min(bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn time_is_linear_between_points_and_flat_beyond_them() {
        let mut curve = Curve::new();
        assert_eq!(curve.at(3), 0.0);
        for (count, time) in [(2, 10), (10, 26), (40, 30)] {
            (0..3).for_each(|_| curve.measure(count, ms(time)));
        }
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        for (count, time) in [(1, 10.0), (2, 10.0), (6, 18.0), (10, 26.0), (25, 28.0), (400, 30.0)]
        {
            near(curve.at(count), time / 1e3);
        }
    }

    /// One token took 40 ms and 17 took 50: then 400 take up to 1.2 s, not 50 ms.
    #[test]
    fn the_bound_grows_beyond_the_last_point() {
        let mut curve = Curve::new();
        assert_eq!(curve.bound(3), 0.0);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        (0..3).for_each(|_| curve.measure(1, ms(40)));
        near(curve.bound(1), 0.04);
        near(curve.bound(10), 0.4);
        (0..3).for_each(|_| curve.measure(17, ms(50)));
        near(curve.bound(9), 0.045);
        near(curve.bound(400), 0.05 * 400.0 / 17.0);
        (0..3).for_each(|_| curve.measure(34, ms(150)));
        near(curve.bound(51), 0.25);
    }

    #[test]
    fn the_first_sample_and_outliers_weigh_little() {
        let mut curve = Curve::new();
        curve.measure(1, ms(500));
        (0..10).for_each(|i| curve.measure(1, ms(if i % 3 == 0 { 400 } else { 10 })));
        assert!(curve.at(1) < 0.011, "{}", curve.at(1));
        curve.measure(1, ms(900));
        assert!(curve.at(1) < 0.012, "{}", curve.at(1));
        // A larger step that was quicker shows that the smaller one was disturbed.
        curve.measure(8, ms(7));
        assert!(curve.at(1) < 0.008, "{}", curve.at(1));
    }

    #[test]
    fn lasting_slowdowns_are_learnt() {
        let mut curve = Curve::new();
        (0..20).for_each(|_| curve.measure(1, ms(10)));
        (0..80).for_each(|_| curve.measure(1, ms(15)));
        assert!(curve.at(1) > 0.014, "{}", curve.at(1));
        (0..10).for_each(|_| curve.measure(1, ms(10)));
        assert!(curve.at(1) < 0.011, "{}", curve.at(1));
    }

    #[test]
    fn points_cover_all_counts_in_order() {
        let of: Vec<usize> = (1..100_000).map(point).collect();
        assert!(of.windows(2).all(|pair| pair[0] <= pair[1] && pair[1] <= pair[0] + 1));
        assert_eq!((of[0], of[15], of[16]), (0, 15, 16));
    }

    #[test]
    fn times_of_zero_are_not_measurements() {
        let mut cost = StepCost::new();
        cost.measure(4, Duration::ZERO, 1, Duration::ZERO);
        assert!(!cost.is_known() && !cost.knows(9));
        (0..2).for_each(|_| cost.measure(4, ms(8), 1, ms(3)));
        assert!(cost.knows(4) && !cost.knows(3));
        assert!((cost.expect(4, 1) - 0.011).abs() < 1e-9);
        (0..300).for_each(|_| cost.measure(9, ms(8), 0, ms(0)));
        assert!(!cost.knows(4), "too long ago");
    }
}
