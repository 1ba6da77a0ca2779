//! Repeated measurements and their statistics.

use serde_json::{Value, json};

/// One or more measurements of the same thing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Samples(pub(super) Vec<f64>);

impl Samples {
    /// The middle one, or the mean of the two in the middle.
    pub(super) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub(super) fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(super) fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// The value that a share of the measurements lie below; between two, in proportion.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        assert!(!self.0.is_empty(), "a measurement was made");
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let place = share * (sorted.len() - 1) as f64;
        let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
        below + (above - below) * place.fract()
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "median": self.median(),
            "min": self.min(),
            "max": self.max(),
            "samples": self.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_statistics() {
        let samples = Samples(vec![5.0, 1.0, 2.0, 10.0]);
        assert_eq!((samples.min(), samples.median(), samples.max()), (1.0, 3.5, 10.0));
        assert_eq!(samples.quantile(0.0), 1.0);
        assert!((samples.quantile(0.1) - 1.3).abs() < 1e-12);
        assert_eq!(samples.quantile(1.0), 10.0);
        assert_eq!(Samples(vec![4.0]).quantile(0.1), 4.0);
    }
}
