//! IQ2_XS: 256 values as 32 points of a grid of 512 with their signs, in 16 groups of two points;
//! `value = d · (½ + scale) / 4 · sign · grid`.

use super::grid::{IQ2_XS, LEVELS_2};
use super::half_at;
use super::leveled::{Leveled, odd, signed};
use super::sign::even;

/// Values of a block.
pub const VALUES: usize = 256;
/// Bytes of a block: `d`, 32 words of nine index and seven sign bits, 16 scale nibbles.
pub const BYTES: usize = 74;

/// The format as levels.
pub struct Iq2Xs;

impl Leveled for Iq2Xs {
    const VALUES: usize = VALUES;
    const BYTES: usize = BYTES;
    const GROUP: usize = 16;
    const LEVELS: [f32; 16] = signed(LEVELS_2);

    fn unit(block: &[u8]) -> f32 {
        0.125 * half_at(block, 0)
    }

    fn scale(block: &[u8], group: usize) -> i8 {
        odd(&block[66..], group)
    }

    fn index(block: &[u8], j: usize) -> u8 {
        let at = 2 + j / 8 * 2;
        let word = u16::from_le_bytes([block[at], block[at + 1]]);
        let level = (IQ2_XS[usize::from(word & 511)] >> (2 * (j % 8)) & 3) as u8;
        level | (even((word >> 9) as u8) >> (j % 8) & 1) << 2
    }
}
