//! Sign patterns of eight values of which an even number is negative: seven bits say all.

/// The eight signs whose first seven are `bits`; the eighth makes their number even.
pub fn even(bits: u8) -> u8 {
    bits | (bits.count_ones() as u8 & 1) << 7
}
