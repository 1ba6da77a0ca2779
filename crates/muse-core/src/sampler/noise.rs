//! Counter-based noise: a function of seed and position, without state.

use crate::hash::hash64;

/// Makes the noise of a seed independent of the seeds that are derived from it by hashing.
const NOISE: u64 = 0x6d75_7365_6e6f_6973;

/// Uniform in `[0, 1)`, a function of `(seed, position)`.
pub(super) fn uniform(seed: u64, position: u32) -> f64 {
    const UNIT: f64 = 1.0 / (1u64 << 53) as f64;
    (hash64(seed ^ NOISE, u64::from(position)) >> 11) as f64 * UNIT
}
