//! Reads memory as fast as the machine can: a ceiling, not a part of any operation.

use super::plain::per_isa;

/// Combines the words, so that none can be left out.
pub type Read = fn(words: &[i32]) -> i32;

per_isa!(Read = fn(words: &[i32]) -> i32, read);

#[inline(always)]
fn read(words: &[i32]) -> i32 {
    let mut sums = [0_i32; 64];
    for words in words.as_chunks::<64>().0 {
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum ^= word;
        }
    }
    sums.into_iter().fold(0, |sum, word| sum ^ word)
}
