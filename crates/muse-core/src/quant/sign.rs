//! Sign patterns of eight values, stored in seven bits: an even number of the values is negative,
//! so the eighth sign follows from the others.

/// The eight signs (1 is negative) whose first seven are `bits`.
pub fn expand(bits: u8) -> u8 {
    bits | (bits.count_ones() as u8 & 1) << 7
}
