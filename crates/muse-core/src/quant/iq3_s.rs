//! IQ3_S: 256 values as 64 points of a grid of 512 with their signs, in 8 groups of eight points;
//! `value = d · (1 + 2 · scale) · sign · grid`.

use super::bits::half_at;
use super::codebook::{Codebook, odd_scale, with_negatives};
use super::grid::{IQ3_S, IQ3_S_VALUES};

/// Values of a quant block.
pub const VALUES: usize = 256;
/// Bytes of a quant block: `d`, 64 bytes of low index bits, 8 of ninth index bits, 32 of signs, 8
/// scale nibbles.
pub const BYTES: usize = 110;

/// The format, for code that is generic over [`Codebook`].
pub struct Iq3S;

impl Codebook for Iq3S {
    const VALUES: usize = VALUES;
    const BYTES: usize = BYTES;
    const GROUP: usize = 32;
    const CODEBOOK: [f32; 16] = with_negatives(IQ3_S_VALUES);

    fn block_scale(block: &[u8]) -> f32 {
        half_at(block, 0)
    }

    fn scale(block: &[u8], group: usize) -> i8 {
        odd_scale(&block[106..], group)
    }

    fn index(block: &[u8], j: usize) -> u8 {
        let i = j / 4;
        let high = usize::from(block[66 + i / 8] >> (i % 8) & 1);
        let entry = IQ3_S[usize::from(block[2 + i]) | high << 8] >> (3 * (j % 4)) & 7;
        entry as u8 | (block[74 + j / 8] >> (j % 8) & 1) << 3
    }
}
