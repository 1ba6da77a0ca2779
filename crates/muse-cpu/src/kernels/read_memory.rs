//! Reads memory as fast as the machine can. No operation uses it: [`crate::Peaks`] measures the
//! memory bandwidth with it.

use super::per_isa::per_isa;

/// Returns the XOR of all words, so that no read can be optimized away.
pub type ReadMemory = fn(words: &[i32]) -> i32;

per_isa!(ReadMemory = fn(words: &[i32]) -> i32, read_memory);

#[inline(always)]
fn read_memory(words: &[i32]) -> i32 {
    let mut sums = [0_i32; 64];
    for words in words.as_chunks::<64>().0 {
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum ^= word;
        }
    }
    sums.into_iter().fold(0, |sum, word| sum ^ word)
}
