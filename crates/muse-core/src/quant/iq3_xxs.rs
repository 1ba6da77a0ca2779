//! IQ3_XXS: 256 values as 64 points of a grid of 256 with their signs, in 8 groups of eight points;
//! `value = d · (½ + scale) / 2 · sign · grid`.

use super::bits::half_at;
use super::codebook::{Codebook, with_negatives};
use super::grid::{IQ3_XXS, IQ3_XXS_VALUES};
use super::sign;

/// Values of a quant block.
pub const VALUES: usize = 256;
/// Bytes of a quant block: `d`, 64 grid indices, 8 words of four seven-bit sign patterns below
/// a four-bit scale.
pub const BYTES: usize = 98;

/// The format, for code that is generic over [`Codebook`].
pub struct Iq3Xxs;

impl Codebook for Iq3Xxs {
    const VALUES: usize = VALUES;
    const BYTES: usize = BYTES;
    const GROUP: usize = 32;
    const CODEBOOK: [f32; 16] = with_negatives(IQ3_XXS_VALUES);

    fn block_scale(block: &[u8]) -> f32 {
        0.25 * half_at(block, 0)
    }

    fn scale(block: &[u8], group: usize) -> i8 {
        2 * (word(block, group) >> 28) as i8 + 1
    }

    fn index(block: &[u8], j: usize) -> u8 {
        let entry = IQ3_XXS[usize::from(block[2 + j / 4])] >> (3 * (j % 4)) & 7;
        let signs = sign::expand((word(block, j / 32) >> (7 * (j / 8 % 4)) & 127) as u8);
        entry as u8 | (signs >> (j % 8) & 1) << 3
    }
}

/// The word of group `group`.
fn word(block: &[u8], group: usize) -> u32 {
    u32::from_le_bytes(block[66..].as_chunks().0[group])
}
