//! IQ2_XS: 256 values as 32 points of a grid of 512 with their signs, in 16 groups of two points;
//! `value = d · (½ + scale) / 4 · sign · grid`.

use super::bits::half_at;
use super::codebook::{Codebook, odd_scale, with_negatives};
use super::grid::{IQ2_VALUES, IQ2_XS};
use super::sign;

/// Values of a quant block.
pub const VALUES: usize = 256;
/// Bytes of a quant block: `d`, 32 words of nine index and seven sign bits, 16 scale nibbles.
pub const BYTES: usize = 74;

/// The format, for code that is generic over [`Codebook`].
pub struct Iq2Xs;

impl Codebook for Iq2Xs {
    const VALUES: usize = VALUES;
    const BYTES: usize = BYTES;
    const GROUP: usize = 16;
    const CODEBOOK: [f32; 16] = with_negatives(IQ2_VALUES);

    fn block_scale(block: &[u8]) -> f32 {
        0.125 * half_at(block, 0)
    }

    fn scale(block: &[u8], group: usize) -> i8 {
        odd_scale(&block[66..], group)
    }

    fn index(block: &[u8], j: usize) -> u8 {
        let at = 2 + j / 8 * 2;
        let word = u16::from_le_bytes([block[at], block[at + 1]]);
        let entry = (IQ2_XS[usize::from(word & 511)] >> (2 * (j % 8)) & 3) as u8;
        entry | (sign::expand((word >> 9) as u8) >> (j % 8) & 1) << 2
    }
}
