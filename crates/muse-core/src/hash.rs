//! The 64-bit hash behind noise, derived seeds and prefix hashes: SplitMix64, no state.

/// Step of the Weyl sequence behind SplitMix64: 2^64 over the golden ratio, odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hashes `n` under `seed`. The seed is hashed before the number is added, so that neighbouring
/// seeds give unrelated results.
pub fn hash64(seed: u64, n: u64) -> u64 {
    finalize(finalize(seed.wrapping_add(STEP)).wrapping_add(n.wrapping_mul(STEP)))
}

/// The finalizer of SplitMix64: every input bit affects every output bit.
fn finalize(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
