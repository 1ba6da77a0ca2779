//! What a step costs: measured times by rows of a pass and by drafted blocks.

use std::time::Duration;

/// Row counts up to this have a point each; above it a point covers a quarter of a doubling.
const EXACT: usize = 16;
const POINTS: usize = EXACT + 4 * 16;
/// Samples of a point of which the quickest counts, the first aside: that one is warm-up.
const FIRST: u32 = 4;
/// Shares of a later sample: a quicker one shows what a step costs, a slower one mostly that others
/// had the machine. Yet the machine's load and the context do change.
const QUICKER: f64 = 0.25;
const SLOWER: f64 = 0.0625;
/// A measured point is measured anew after so many samples of others.
const STALE: u64 = 256;

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

    /// Takes in a step: its rows and the time of its pass, its blocks and the time of drafting.
    /// A clock that stands still measures nothing.
    pub(super) fn measure(&mut self, rows: usize, pass: Duration, blocks: usize, draft: Duration) {
        self.passes.measure(rows, pass);
        self.drafts.measure(blocks, draft);
    }

    /// Whether passes were ever measured.
    pub(super) fn is_known(&self) -> bool {
        self.passes.samples > 0
    }

    /// Whether a pass of at most `rows` rows was measured lately.
    pub(super) fn knows(&self, rows: usize) -> bool {
        let points = &self.passes.points[..=point(rows)];
        points.iter().any(|p| p.samples > 1 && self.passes.samples - p.measured < STALE)
    }

    /// Expected time of a step.
    pub(super) fn expect(&self, rows: usize, blocks: usize) -> f64 {
        let draft = if blocks == 0 { 0.0 } else { self.drafts.at(blocks) };
        self.passes.at(rows) + draft
    }
}

/// Time by count, measured at points and straight between them. Beyond the last point it is flat:
/// what was never tried is hoped to be cheap, and then measured.
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
    /// Number of the curve's samples when it was measured last.
    measured: u64,
}

fn point(count: usize) -> usize {
    if count <= EXACT {
        return count.saturating_sub(1);
    }
    let quarters = (4.0 * (count as f64 / EXACT as f64).log2()).ceil() as usize;
    (EXACT - 1 + quarters).min(POINTS - 1)
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
        let quicker = time < point.time;
        let share = match point.samples {
            ..2 => 1.0,
            2..=FIRST => f64::from(u8::from(quicker)),
            _ if quicker => QUICKER,
            _ => SLOWER,
        };
        point.count += share * (count as f64 - point.count);
        point.time += share * (time - point.time);
        point.samples = point.samples.saturating_add(1);
        point.measured = self.samples;
    }

    fn at(&self, count: usize) -> f64 {
        let at = point(count);
        let known = |point: &&Point| point.samples > 0;
        let below = self.points[..=at].iter().rev().find(known);
        let above = self.points[at..].iter().find(known);
        // More is never quicker: a point that says so was disturbed when it was measured.
        let most = self.points[at..].iter().filter(known).map(|point| point.time);
        let most = most.fold(f64::INFINITY, f64::min);
        let time = match (below, above) {
            (Some(a), Some(b)) if b.count > a.count => {
                let share = ((count as f64 - a.count) / (b.count - a.count)).clamp(0.0, 1.0);
                a.time + share * (b.time - a.time)
            }
            (Some(point), _) | (None, Some(point)) => point.time,
            (None, None) => 0.0,
        };
        time.min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn between_points_it_is_straight_and_beyond_them_flat() {
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

    #[test]
    fn the_first_sample_and_outliers_weigh_little() {
        let mut curve = Curve::new();
        curve.measure(1, ms(500));
        (0..10).for_each(|i| curve.measure(1, ms(if i % 3 == 0 { 400 } else { 10 })));
        assert!(curve.at(1) < 0.011, "{}", curve.at(1));
        curve.measure(1, ms(900));
        assert!(curve.at(1) < 0.012, "{}", curve.at(1));
        // More that was quicker shows that it was disturbed.
        curve.measure(8, ms(7));
        assert!(curve.at(1) < 0.008, "{}", curve.at(1));
    }

    #[test]
    fn what_becomes_slower_is_noticed() {
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
    fn a_clock_that_stands_still_measures_nothing() {
        let mut cost = StepCost::new();
        cost.measure(4, Duration::ZERO, 1, Duration::ZERO);
        assert!(!cost.is_known() && !cost.knows(9));
        (0..2).for_each(|_| cost.measure(4, ms(8), 1, ms(3)));
        assert!(cost.knows(4) && !cost.knows(3));
        assert!((cost.expect(4, 1) - 0.011).abs() < 1e-9);
        (0..300).for_each(|_| cost.measure(9, ms(8), 0, ms(0)));
        assert!(!cost.knows(4), "long ago");
    }
}
