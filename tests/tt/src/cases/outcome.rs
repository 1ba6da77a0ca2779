//! How close a result is to its reference, and whether that is close enough.

use std::fmt;

use muse_testkit::{correlation, max_abs_diff};

/// Minimum correlation of results in BF16 from sums in f32.
const MIN_CORRELATION: f64 = 0.9999;
/// Maximum error, relative to the largest value, for each rounding to BF16 of a value or of its
/// operands: correlation does not reveal a common factor or offset. Half a step of eight bits is at
/// most 2^-8 of the value; half of that is added for F32 operands, of which products take eleven
/// bits, and for functions that are series.
const MAX_ERROR: f32 = 1.5 / 256.0;

/// The comparison of a result with its reference.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Correlation with the reference.
    pub correlation: f64,
    /// The largest absolute difference.
    pub error: f32,
    /// The largest absolute value of the reference.
    pub largest: f32,
    exact: bool,
    /// Minimum correlation, and maximum error relative to the largest value.
    bounds: (f64, f32),
}

impl Outcome {
    /// Whether the result is close enough.
    pub fn passes(&self) -> bool {
        match self.exact {
            true => self.error == 0.0,
            false => {
                let (min_correlation, max_error) = self.bounds;
                self.correlation >= min_correlation && self.error <= max_error * self.largest
            }
        }
    }

    /// Compares with the bounds of one operation that rounds once.
    pub(super) fn near(actual: &[f32], reference: &[f32]) -> Self {
        let (correlation, error) =
            (correlation(actual, reference), max_abs_diff(actual, reference));
        let largest = reference.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
        Self { correlation, error, largest, exact: false, bounds: (MIN_CORRELATION, MAX_ERROR) }
    }

    /// The same for values that are rounded `times` times in all.
    pub(super) fn rounded(self, times: u32) -> Self {
        self.within(MIN_CORRELATION, times as f32 * MAX_ERROR)
    }

    /// The same with other bounds.
    pub(super) fn within(self, min_correlation: f64, max_error: f32) -> Self {
        Self { bounds: (min_correlation, max_error), ..self }
    }

    /// Fails when one of `values` is no longer `before`.
    pub(super) fn untouched(self, values: &[f32], before: f32) -> Self {
        let error = if values.iter().all(|x| *x == before) { self.error } else { f32::INFINITY };
        Self { error, ..self }
    }

    /// The worst of several outcomes, a failing one if there is any.
    pub(super) fn worst(all: Vec<Self>) -> Self {
        let order = |a: &Self, b: &Self| {
            a.passes().cmp(&b.passes()).then(a.correlation.total_cmp(&b.correlation))
        };
        all.into_iter().min_by(order).expect("at least one outcome")
    }

    /// Requires equal values.
    pub(super) fn exact(actual: &[f32], reference: &[f32]) -> Self {
        Self { exact: true, ..Self::near(actual, reference) }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = if self.error == 0.0 { "exact" } else { "" };
        let Self { correlation, error, largest, .. } = self;
        write!(f, "PCC {correlation:.6}  max error {error:.2e} of {largest:.2e}  {exact}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::values;
    use super::*;

    #[test]
    fn neither_a_factor_nor_an_offset_passes() {
        let reference = values(1024, 9);
        let passes = |change: fn(f32) -> f32| {
            let actual: Vec<f32> = reference.iter().map(|x| change(*x)).collect();
            Outcome::near(&actual, &reference).passes()
        };
        assert!(passes(|x| x) && passes(|x| x * 1.005));
        assert!(!passes(|x| x * 1.01) && !passes(|x| x + 0.5) && !passes(|x| -x));
        assert!(!passes(|_| f32::NAN) && !passes(|_| 0.0));
    }
}
