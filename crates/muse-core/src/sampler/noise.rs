//! Counter-based noise: a hash of a seed and a number, with no state to carry or to lose.

/// Step of the Weyl sequence behind SplitMix64: 2^64 over the golden ratio, odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Keeps noise apart from the seeds that [`mix`] derives.
const NOISE: u64 = 0x6d75_7365_6e6f_6973;

/// An independent seed for choice `n` of a request. The seed is mixed before the number comes in:
/// neighbouring seeds share nothing.
pub fn mix(seed: u64, n: u64) -> u64 {
    scramble(scramble(seed.wrapping_add(STEP)).wrapping_add(n.wrapping_mul(STEP)))
}

/// Uniform in `[0, 1)`, a function of `(seed, position)`.
pub(super) fn uniform(seed: u64, position: u32) -> f64 {
    const UNIT: f64 = 1.0 / (1u64 << 53) as f64;
    (mix(seed ^ NOISE, u64::from(position)) >> 11) as f64 * UNIT
}

/// The finalizer of SplitMix64: every input bit reaches every output bit.
fn scramble(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
