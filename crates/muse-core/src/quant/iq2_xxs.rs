//! IQ2_XXS: 256 values as 32 points of a grid of 256 with their signs, in 8 groups of four points;
//! `value = d · (½ + scale) / 4 · sign · grid`.

use super::bits::half_at;
use super::codebook::{Codebook, with_negatives};
use super::grid::{IQ2_VALUES, IQ2_XXS};
use super::sign;

/// Values of a quant block.
pub const VALUES: usize = 256;
/// Bytes of a quant block: `d`, then for each group four grid indices and a word of four seven-bit
/// sign patterns below a four-bit scale.
pub const BYTES: usize = 66;

/// The format, for code that is generic over [`Codebook`].
pub struct Iq2Xxs;

impl Codebook for Iq2Xxs {
    const VALUES: usize = VALUES;
    const BYTES: usize = BYTES;
    const GROUP: usize = 32;
    const CODEBOOK: [f32; 16] = with_negatives(IQ2_VALUES);

    fn block_scale(block: &[u8]) -> f32 {
        0.125 * half_at(block, 0)
    }

    fn scale(block: &[u8], group: usize) -> i8 {
        2 * (word(block, group) >> 28) as i8 + 1
    }

    fn index(block: &[u8], j: usize) -> u8 {
        let (group, i) = (j / 32, j / 8 % 4);
        let entry = IQ2_XXS[usize::from(block[2 + 8 * group + i])] >> (2 * (j % 8)) & 3;
        let signs = sign::expand((word(block, group) >> (7 * i) & 127) as u8);
        entry as u8 | (signs >> (j % 8) & 1) << 2
    }
}

/// The word of group `group`, which follows its grid indices.
fn word(block: &[u8], group: usize) -> u32 {
    u32::from_le_bytes(block[2..].as_chunks().0[2 * group + 1])
}
