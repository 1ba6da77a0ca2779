//! IQ2_S: 256 values as 32 points of a grid of 1024 with their signs, in 16 groups of two points;
//! `value = d · (½ + scale) / 4 · sign · grid`.

use super::bits::half_at;
use super::codebook::{Codebook, odd_scale, with_negatives};
use super::grid::{IQ2_S, IQ2_VALUES};

/// Values of a quant block.
pub const VALUES: usize = 256;
/// Bytes of a quant block: `d`, 32 bytes of low index bits, 32 of signs, 8 of high index bits, 16
/// scale nibbles.
pub const BYTES: usize = 82;

/// The format, for code that is generic over [`Codebook`].
pub struct Iq2S;

impl Codebook for Iq2S {
    const VALUES: usize = VALUES;
    const BYTES: usize = BYTES;
    const GROUP: usize = 16;
    const CODEBOOK: [f32; 16] = with_negatives(IQ2_VALUES);

    fn block_scale(block: &[u8]) -> f32 {
        0.125 * half_at(block, 0)
    }

    fn scale(block: &[u8], group: usize) -> i8 {
        odd_scale(&block[74..], group)
    }

    fn index(block: &[u8], j: usize) -> u8 {
        let i = j / 8;
        let high = usize::from(block[66 + i / 4] >> (2 * (i % 4)) & 3);
        let point = IQ2_S[usize::from(block[2 + i]) | high << 8];
        (point >> (2 * (j % 8)) & 3) as u8 | (block[34 + i] >> (j % 8) & 1) << 2
    }
}
