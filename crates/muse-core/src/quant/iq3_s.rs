//! IQ3_S: 256 values as 64 points of a grid of 512 with their signs, in 8 groups of eight points;
//! `value = d · (1 + 2 · scale) · sign · grid`.

use super::grid::{IQ3_S, LEVELS_3_S};
use super::half_at;
use super::leveled::{Leveled, odd, signed};

/// Values of a block.
pub const VALUES: usize = 256;
/// Bytes of a block: `d`, 64 low index bytes, 8 of ninth index bits, 32 of signs, 8 scale nibbles.
pub const BYTES: usize = 110;

/// The format as levels.
pub struct Iq3S;

impl Leveled for Iq3S {
    const VALUES: usize = VALUES;
    const BYTES: usize = BYTES;
    const GROUP: usize = 32;
    const LEVELS: [f32; 16] = signed(LEVELS_3_S);

    fn unit(block: &[u8]) -> f32 {
        half_at(block, 0)
    }

    fn scale(block: &[u8], group: usize) -> i8 {
        odd(&block[106..], group)
    }

    fn index(block: &[u8], j: usize) -> u8 {
        let i = j / 4;
        let high = usize::from(block[66 + i / 8] >> (i % 8) & 1);
        let level = IQ3_S[usize::from(block[2 + i]) | high << 8] >> (3 * (j % 4)) & 7;
        level as u8 | (block[74 + j / 8] >> (j % 8) & 1) << 3
    }
}
