//! Least-squares fits of a group's scale, or scale and offset, to an integer range of quants.
//!
//! A fit maps the group's largest value to several points near the end of the range, rounds all
//! values under each, solves for the scale that fits those quants best, keeps the best of all and
//! refines it by rounding and solving again.

/// Points tried on each side of the end of the range.
const STEPS: i32 = 12;
/// Distance between two points, in quants.
const STEP: f32 = 0.11;
/// Rounds of rounding and solving after the search.
const REFINEMENTS: usize = 2;
/// Partial sums of a weighted sum, so that the loops below vectorize.
const LANES: usize = 8;

/// The integer nearest to `x` within the bounds, which must be far below 2²²: adding and
/// subtracting 1.5 · 2²³ rounds to nearest, ties to even, without a library call.
pub(super) fn nearest(x: f32, lowest: f32, highest: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0;
    (x.max(lowest).min(highest) + ROUND) - ROUND
}

/// The reciprocal, or 0 where it is not finite.
pub(super) fn inverse(x: f32) -> f32 {
    let inverse = 1.0 / x;
    if inverse.is_finite() { inverse } else { 0.0 }
}

/// Quants from `lowest` (below 0) to `highest`: `value = scale · quant`, the scale of either sign.
#[derive(Clone, Copy)]
pub(super) struct IntRange {
    pub(super) lowest: f32,
    pub(super) highest: f32,
}

impl IntRange {
    /// The scale with the least weighted squared error.
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

    /// Weighted sums of `value · quant` and `quant²`.
    fn sums<const N: usize>(
        self,
        values: &[f32; N],
        weights: &[f32; N],
        inverse: f32,
    ) -> (f32, f32) {
        let (mut products, mut squares) = ([0.0; LANES], [0.0; LANES]);
        for (x, w) in lanes(values).zip(lanes(weights)) {
            for i in 0..LANES {
                let quant = nearest(x[i] * inverse, self.lowest, self.highest);
                products[i] += w[i] * x[i] * quant;
                squares[i] += w[i] * quant * quant;
            }
        }
        (total(products), total(squares))
    }

    /// The quant nearest to a value; `inverse` is the reciprocal of the scale.
    pub(super) fn quant(self, value: f32, inverse: f32) -> f32 {
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
                let miss = x[i] - scale * self.quant(x[i], inverse);
                errors[i] += w[i] * miss * miss;
            }
        }
        total(errors)
    }
}

/// `value = scale · quant + offset`, quants from 0.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Affine {
    pub(super) scale: f32,
    pub(super) offset: f32,
}

impl Affine {
    /// The scale and offset with the least weighted squared error for quants up to `highest`. The
    /// offset is at most 0 unless `positive_offset`.
    pub(super) fn fit<const N: usize>(
        values: &[f32; N],
        weights: &[f32; N],
        highest: f32,
        positive_offset: bool,
    ) -> Self {
        let limit = if positive_offset { f32::INFINITY } else { 0.0 };
        let smallest = values.iter().copied().fold(limit, f32::min);
        let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let per_value = inverse(largest - smallest);
        if per_value == 0.0 {
            return Self { scale: 0.0, offset: smallest };
        }
        // Values that begin at 0 lose less precision in the differences of sums of squares.
        let shifted = values.map(|x| x - smallest);
        let mut best = (f32::INFINITY, Self::default());
        let attempt = |fit: Self, best: &mut (f32, Self)| {
            let sums = Sums::new(&shifted, weights, fit, highest);
            let found = sums.solve(limit - smallest);
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
        Self { scale: best.1.scale, offset: best.1.offset + smallest }
    }

    /// The quant nearest to a value; `inverse` is the reciprocal of the scale.
    pub(super) fn quant(self, value: f32, inverse: f32, highest: f32) -> f32 {
        nearest((value - self.offset) * inverse, 0.0, highest)
    }

    /// The weighted squared error, and the weighted mean of `value - scale · quant`: the offset
    /// that fits these quants best.
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
                let rest = x[i] - self.scale * self.quant(x[i], inverse, highest);
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

/// Weighted sums over values `x`, their quants `q` and products of these; `one` is the sum of the
/// weights.
struct Sums {
    one: f32,
    x: f32,
    q: f32,
    xx: f32,
    xq: f32,
    qq: f32,
}

impl Sums {
    fn new<const N: usize>(
        values: &[f32; N],
        weights: &[f32; N],
        fit: Affine,
        highest: f32,
    ) -> Self {
        let inverse = inverse(fit.scale);
        let mut sums = [[0.0_f32; LANES]; 6];
        for (x, w) in lanes(values).zip(lanes(weights)) {
            for i in 0..LANES {
                let q = fit.quant(x[i], inverse, highest);
                let terms = [1.0, x[i], q, x[i] * x[i], x[i] * q, q * q];
                for (sum, term) in sums.iter_mut().zip(terms) {
                    sum[i] += w[i] * term;
                }
            }
        }
        let [one, x, q, xx, xq, qq] = sums.map(total);
        Self { one, x, q, xx, xq, qq }
    }

    /// The best scale and offset for these quants, with an offset of at most `limit`.
    fn solve(&self, limit: f32) -> Affine {
        let determinant = self.one * self.qq - self.q * self.q;
        if determinant > 0.0 {
            let scale = (self.one * self.xq - self.x * self.q) / determinant;
            let offset = (self.qq * self.x - self.q * self.xq) / determinant;
            if offset <= limit && scale > 0.0 {
                return Affine { scale, offset };
            }
        }
        if limit.is_finite() && self.qq > 0.0 {
            return Affine { scale: (self.xq - limit * self.q) / self.qq, offset: limit };
        }
        Affine { scale: 0.0, offset: self.x * inverse_of_weight(self.one) }
    }

    /// The weighted squared error of these quants under a scale and offset.
    fn error(&self, Affine { scale, offset }: Affine) -> f32 {
        self.xx + scale * scale * self.qq + offset * offset * self.one
            - 2.0 * (scale * self.xq + offset * self.x - scale * offset * self.q)
    }
}

fn lanes<const N: usize>(values: &[f32; N]) -> std::slice::Iter<'_, [f32; LANES]> {
    const { assert!(N.is_multiple_of(LANES), "groups are multiples of LANES values") };
    values.as_chunks().0.iter()
}

/// The sum of the partial sums.
fn total(lanes: [f32; LANES]) -> f32 {
    lanes.iter().sum()
}
