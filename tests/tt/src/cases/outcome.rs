//! How near a result is to what is wanted, and whether that is near enough.

use std::fmt;

use muse_testkit::{correlation, max_abs_diff};

/// What sums in f32 and results in BF16 must come to.
const NEAR: f64 = 0.9999;
/// How far off a value may be for each time that it, or what it is made from, is rounded to BF16, in
/// parts of the largest: correlation does not see a factor or an offset that all values have. Half a
/// step of eight bits is 2^-8 of the value at most; half as much again is for F32 values, of which
/// products take eleven bits, and for functions that are series.
const FAR: f32 = 1.5 / 256.0;

/// How near a result is.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Correlation with what is wanted.
    pub correlation: f64,
    /// The largest absolute difference.
    pub error: f32,
    /// The largest absolute value that is wanted.
    pub largest: f32,
    exact: bool,
    /// The least correlation, and the largest error in parts of the largest value.
    bounds: (f64, f32),
}

impl Outcome {
    /// Whether it is near enough.
    pub fn passes(&self) -> bool {
        match self.exact {
            true => self.error == 0.0,
            false => {
                let (near, far) = self.bounds;
                self.correlation >= near && self.error <= far * self.largest
            }
        }
    }

    pub(super) fn near(got: &[f32], want: &[f32]) -> Self {
        let (correlation, error) = (correlation(got, want), max_abs_diff(got, want));
        let largest = want.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
        Self { correlation, error, largest, exact: false, bounds: (NEAR, FAR) }
    }

    /// The same for values that are rounded so many times on their way, the last time included.
    pub(super) fn rounded(self, times: u32) -> Self {
        self.within(NEAR, times as f32 * FAR)
    }

    /// The same with other bounds than those of one operation.
    pub(super) fn within(self, near: f64, far: f32) -> Self {
        Self { bounds: (near, far), ..self }
    }

    /// Fails when a value is not what it was before.
    pub(super) fn untouched(self, values: &[f32], before: f32) -> Self {
        let error = if values.iter().all(|x| *x == before) { self.error } else { f32::INFINITY };
        Self { error, ..self }
    }

    /// The worst of several; one that fails is worse.
    pub(super) fn worst(all: Vec<Self>) -> Self {
        let order = |a: &Self, b: &Self| {
            a.passes().cmp(&b.passes()).then(a.correlation.total_cmp(&b.correlation))
        };
        all.into_iter().min_by(order).expect("something was compared")
    }

    pub(super) fn exact(got: &[f32], want: &[f32]) -> Self {
        Self { exact: true, ..Self::near(got, want) }
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
        let want = values(1024, 9);
        let passes = |change: fn(f32) -> f32| {
            let got: Vec<f32> = want.iter().map(|x| change(*x)).collect();
            Outcome::near(&got, &want).passes()
        };
        assert!(passes(|x| x) && passes(|x| x * 1.005));
        assert!(!passes(|x| x * 1.01) && !passes(|x| x + 0.5) && !passes(|x| -x));
        assert!(!passes(|_| f32::NAN) && !passes(|_| 0.0));
    }
}
