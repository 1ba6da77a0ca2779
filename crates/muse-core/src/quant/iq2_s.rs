//! IQ2_S: 256 values as 32 points of a grid of 1024 with their signs, in 16 groups of two points;
//! `value = d · (½ + scale) / 4 · sign · grid`.

use super::grid::{IQ2_S, LEVELS_2};
use super::half_at;
use super::leveled::{Leveled, odd, signed};

/// Values of a block.
pub const VALUES: usize = 256;
/// Bytes of a block: `d`, 32 low index bytes, 32 sign bytes, 8 of high index bits, 16 scale
/// nibbles.
pub const BYTES: usize = 82;

/// The format as levels.
pub struct Iq2S;

impl Leveled for Iq2S {
    const VALUES: usize = VALUES;
    const BYTES: usize = BYTES;
    const GROUP: usize = 16;
    const LEVELS: [f32; 16] = signed(LEVELS_2);

    fn unit(block: &[u8]) -> f32 {
        0.125 * half_at(block, 0)
    }

    fn scale(block: &[u8], group: usize) -> i8 {
        odd(&block[74..], group)
    }

    fn index(block: &[u8], j: usize) -> u8 {
        let i = j / 8;
        let high = usize::from(block[66 + i / 4] >> (2 * (i % 4)) & 3);
        let point = IQ2_S[usize::from(block[2 + i]) | high << 8];
        (point >> (2 * (j % 8)) & 3) as u8 | (block[34 + i] >> (j % 8) & 1) << 2
    }
}
