//! IQ2_XXS: 256 values as 32 points of a grid of 256 with their signs, in 8 groups of four points;
//! `value = d · (½ + scale) / 4 · sign · grid`.

use super::grid::{IQ2_XXS, LEVELS_2};
use super::half_at;
use super::leveled::{Leveled, signed};
use super::sign::even;

/// Values of a block.
pub const VALUES: usize = 256;
/// Bytes of a block: `d`, then per group four grid indices and a word of four seven-bit sign
/// patterns under a four-bit scale.
pub const BYTES: usize = 66;

/// The format as levels.
pub struct Iq2Xxs;

impl Leveled for Iq2Xxs {
    const VALUES: usize = VALUES;
    const BYTES: usize = BYTES;
    const GROUP: usize = 32;
    const LEVELS: [f32; 16] = signed(LEVELS_2);

    fn unit(block: &[u8]) -> f32 {
        0.125 * half_at(block, 0)
    }

    fn scale(block: &[u8], group: usize) -> i8 {
        2 * (word(block, group) >> 28) as i8 + 1
    }

    fn index(block: &[u8], j: usize) -> u8 {
        let (group, i) = (j / 32, j / 8 % 4);
        let level = IQ2_XXS[usize::from(block[2 + 8 * group + i])] >> (2 * (j % 8)) & 3;
        let signs = even((word(block, group) >> (7 * i) & 127) as u8);
        level as u8 | (signs >> (j % 8) & 1) << 2
    }
}

/// Word of group `group`, behind its grid indices.
fn word(block: &[u8], group: usize) -> u32 {
    u32::from_le_bytes(block[2..].as_chunks().0[2 * group + 1])
}
