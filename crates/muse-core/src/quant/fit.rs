//! Least-squares fits of a group's scale, or scale and minimum, to a range of whole numbers.
//!
//! A fit tries alignments of the group's largest value with the end of the range, solves for the
//! best real scale under each rounding, and refines the best one by rounding again.

/// Alignments tried each side of the exact one.
const STEPS: i32 = 12;
/// Distance of two alignments, in whole numbers of the range.
const STEP: f32 = 0.11;
/// Roundings by the fitted numbers themselves, after the search.
const REFINEMENTS: usize = 2;
const LANES: usize = 8;

/// The nearest whole number within the bounds, which must be small: adding and subtracting a
/// large number rounds without a call, on any processor.
pub(super) fn nearest(x: f32, lowest: f32, highest: f32) -> f32 {
    const LARGE: f32 = 12_582_912.0;
    (x.max(lowest).min(highest) + LARGE) - LARGE
}

/// The reciprocal, or 0 where there is none that would serve.
pub(super) fn inverse(x: f32) -> f32 {
    let inverse = 1.0 / x;
    if inverse.is_finite() { inverse } else { 0.0 }
}

/// Whole numbers from `lowest` (below 0) to `highest`, times a scale of either sign.
#[derive(Clone, Copy)]
pub(super) struct Signed {
    pub(super) lowest: f32,
    pub(super) highest: f32,
}

impl Signed {
    /// The scale under which the multiples lie nearest to the values, by weighted squares.
    pub(super) fn fit<const N: usize>(self, values: &[f32; N], weights: &[f32; N]) -> f32 {
        let magnitude = |x: f32, y: f32| if y.abs() > x.abs() { y } else { x };
        let largest = values.iter().copied().fold(0.0, magnitude);
        let per_value = inverse(largest);
        if per_value == 0.0 {
            return 0.0;
        }
        let (mut gain, mut scale) = (0.0, 0.0);
        let mut attempt = |inverse: f32| {
            let (product, square) = self.sums(values, weights, inverse);
            if square > 0.0 && product * product > gain * square {
                gain = product * product / square;
                scale = product / square;
            }
            scale
        };
        for step in -STEPS..=STEPS {
            let aligned = self.lowest + step as f32 * STEP;
            attempt(aligned * per_value);
            attempt(-aligned * per_value);
        }
        for _ in 0..REFINEMENTS {
            let scale = attempt(0.0);
            attempt(inverse(scale));
        }
        scale
    }

    /// Weighted sums of `value · number` and `number²`.
    fn sums<const N: usize>(
        self,
        values: &[f32; N],
        weights: &[f32; N],
        inverse: f32,
    ) -> (f32, f32) {
        let (mut products, mut squares) = ([0.0; LANES], [0.0; LANES]);
        for (x, w) in lanes(values).zip(lanes(weights)) {
            for i in 0..LANES {
                let number = nearest(x[i] * inverse, self.lowest, self.highest);
                products[i] += w[i] * x[i] * number;
                squares[i] += w[i] * number * number;
            }
        }
        (total(products), total(squares))
    }

    /// The number nearest to a value.
    pub(super) fn number(self, value: f32, inverse: f32) -> f32 {
        nearest(value * inverse, self.lowest, self.highest)
    }

    /// Weighted squared error under a scale.
    pub(super) fn error<const N: usize>(
        self,
        values: &[f32; N],
        weights: &[f32; N],
        scale: f32,
    ) -> f32 {
        let inverse = inverse(scale);
        let mut errors = [0.0; LANES];
        for (x, w) in lanes(values).zip(lanes(weights)) {
            for i in 0..LANES {
                let miss = x[i] - scale * self.number(x[i], inverse);
                errors[i] += w[i] * miss * miss;
            }
        }
        total(errors)
    }
}

/// A scale and what is added: `value = scale · number + offset`, numbers from 0.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    pub(super) scale: f32,
    pub(super) offset: f32,
}

impl Line {
    /// The line over numbers up to `highest` that lies nearest to the values, by weighted
    /// squares; its offset is at most 0 unless `above`.
    pub(super) fn fit<const N: usize>(
        values: &[f32; N],
        weights: &[f32; N],
        highest: f32,
        above: bool,
    ) -> Self {
        let limit = if above { f32::INFINITY } else { 0.0 };
        let least = values.iter().copied().fold(limit, f32::min);
        let most = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let per_value = inverse(most - least);
        if per_value == 0.0 {
            return Self { scale: 0.0, offset: least };
        }
        // Sums of squares cancel less when the values begin at 0.
        let shifted = values.map(|x| x - least);
        let mut best = (f32::INFINITY, Self::default());
        let attempt = |line: Self, best: &mut (f32, Self)| {
            let sums = Sums::of(&shifted, weights, line, highest);
            let found = sums.solve(limit - least);
            let error = sums.error(found);
            if error < best.0 {
                *best = (error, found);
            }
        };
        for step in -STEPS..=STEPS {
            let scale = inverse((highest + step as f32 * STEP) * per_value);
            attempt(Self { scale, offset: 0.0 }, &mut best);
        }
        for _ in 0..REFINEMENTS {
            attempt(best.1, &mut best);
        }
        Self { scale: best.1.scale, offset: best.1.offset + least }
    }

    /// The number nearest to a value.
    pub(super) fn number(self, value: f32, inverse: f32, highest: f32) -> f32 {
        nearest((value - self.offset) * inverse, 0.0, highest)
    }

    /// Weighted squared error, and the weighted mean of what is left of values after
    /// `scale · number`.
    pub(super) fn error<const N: usize>(
        self,
        values: &[f32; N],
        weights: &[f32; N],
        highest: f32,
    ) -> (f32, f32) {
        let inverse = inverse(self.scale);
        let (mut errors, mut rests, mut weight) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
        for (x, w) in lanes(values).zip(lanes(weights)) {
            for i in 0..LANES {
                let rest = x[i] - self.scale * self.number(x[i], inverse, highest);
                let miss = rest - self.offset;
                errors[i] += w[i] * miss * miss;
                rests[i] += w[i] * rest;
                weight[i] += w[i];
            }
        }
        (total(errors), total(rests) * inverse_of_weight(total(weight)))
    }
}

fn inverse_of_weight(weight: f32) -> f32 {
    if weight > 0.0 { 1.0 / weight } else { 0.0 }
}

/// Weighted sums over values `x` and their numbers `q`.
struct Sums {
    one: f32,
    x: f32,
    q: f32,
    xx: f32,
    xq: f32,
    qq: f32,
}

impl Sums {
    fn of<const N: usize>(values: &[f32; N], weights: &[f32; N], line: Line, highest: f32) -> Self {
        let inverse = inverse(line.scale);
        let mut sums = [[0.0_f32; LANES]; 6];
        for (x, w) in lanes(values).zip(lanes(weights)) {
            for i in 0..LANES {
                let q = line.number(x[i], inverse, highest);
                let terms = [1.0, x[i], q, x[i] * x[i], x[i] * q, q * q];
                for (sum, term) in sums.iter_mut().zip(terms) {
                    sum[i] += w[i] * term;
                }
            }
        }
        let [one, x, q, xx, xq, qq] = sums.map(total);
        Self { one, x, q, xx, xq, qq }
    }

    /// The best line for these numbers with an offset of at most `limit`.
    fn solve(&self, limit: f32) -> Line {
        let determinant = self.one * self.qq - self.q * self.q;
        if determinant > 0.0 {
            let scale = (self.one * self.xq - self.x * self.q) / determinant;
            let offset = (self.qq * self.x - self.q * self.xq) / determinant;
            if offset <= limit && scale > 0.0 {
                return Line { scale, offset };
            }
        }
        if limit.is_finite() && self.qq > 0.0 {
            return Line { scale: (self.xq - limit * self.q) / self.qq, offset: limit };
        }
        Line { scale: 0.0, offset: self.x * inverse_of_weight(self.one) }
    }

    fn error(&self, Line { scale, offset }: Line) -> f32 {
        self.xx + scale * scale * self.qq + offset * offset * self.one
            - 2.0 * (scale * self.xq + offset * self.x - scale * offset * self.q)
    }
}

fn lanes<const N: usize>(values: &[f32; N]) -> std::slice::Iter<'_, [f32; LANES]> {
    const { assert!(N.is_multiple_of(LANES), "groups are whole lanes") };
    values.as_chunks().0.iter()
}

/// The sum of the lanes. Lanes let the sums above run in parallel.
fn total(lanes: [f32; LANES]) -> f32 {
    lanes.iter().sum()
}
